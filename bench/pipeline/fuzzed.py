"""`python -m bench.pipeline.fuzzed [COUNT]`: COUNT (2,000) broken events on a trajectory subject, good ones between.

Each broken one must lie in the dead-letter stream once, with a code and a sentence; each good one, sent twice, must be
stored once; and the consumer must be alive: an event sent when all is over must be stored too. Real NATS and
PostgreSQL, the product as its image runs it. The last line is one JSON object.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import asyncpg
import nats
from bench.pipeline.world import pipeline
from fuzzed_events import AGENT, event, fuzzed
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

from learnloop_memory.experience.consumer import STREAM_DURABLE
from learnloop_memory.experience.streams import DEAD_LETTERS, TRAJECTORIES

COUNT, EVERY, SEED = 2000, 20, 7
NAMESPACE = "fuzz"
SUBJECT = f"agent.rl.trajectory.v1.{NAMESPACE}.{AGENT}"
SETTLE_SECONDS = 300.0


async def publish(stream: JetStreamContext, messages: list[bytes]) -> None:
    """Returns when all are acknowledged."""
    for start in range(0, len(messages), 200):
        await asyncio.gather(*(stream.publish(SUBJECT, body, timeout=60) for body in messages[start : start + 200]))


async def settled(stream: JetStreamContext) -> None:
    """Returns when the consumer has nothing left to do."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        info = await stream.consumer_info(TRAJECTORIES, STREAM_DURABLE)
        if info.num_pending == 0 and info.num_ack_pending == 0:
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"the consumer still has work after {SETTLE_SECONDS:.0f} s")


async def letters(stream: JetStreamContext) -> list[Any]:
    """Every dead letter of the namespace."""
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=60)
    reader = await stream.pull_subscribe(f"agent.rl.deadletter.v1.{NAMESPACE}.>", stream=DEAD_LETTERS, config=config)
    found: list[Any] = []
    while pending := (await reader.consumer_info()).num_pending:
        found += await reader.fetch(min(pending, 500), timeout=10)
    return found


async def stored(dsn: str) -> Counter[str]:
    """How often each trajectory is in the table."""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = $1", NAMESPACE)
    await connection.close()
    return Counter(row["trajectory_id"] for row in rows)


async def measure(url: str, dsn: str, count: int) -> dict[str, Any]:
    """Sends all of it and counts."""
    rng, messages = random.Random(SEED), []
    good = [f"good{number}" for number in range(0, count, EVERY)]
    for number in range(count):
        messages.append(fuzzed(rng, number))
        if number % EVERY == 0:
            messages += [json.dumps(event(f"good{number}")).encode()] * 2
    client = await nats.connect(url)
    stream = client.jetstream(timeout=60)
    started = time.perf_counter()
    await publish(stream, messages)
    await settled(stream)
    seconds = time.perf_counter() - started
    await publish(stream, [json.dumps(event("afterwards")).encode()])
    await settled(stream)
    found = await letters(stream)
    await client.close()
    kept = await stored(dsn)
    explained = [one for one in found if one.headers.get("Learnloop-Reason", "-") not in ("", "-")]
    return {
        "events": count,
        "rejected_with_a_reason": len(explained),
        "without_a_letter_or_reason": max(0, count - len(explained)),
        "letters_too_many": max(0, len(found) - count),
        "codes": dict(sorted(Counter(one.headers["Learnloop-Code"] for one in found).items())),
        "good_sent_twice": len(good),
        "good_not_stored_once": sum(kept[name] != 1 for name in good),
        "bad_stored": len(set(kept) - set(good) - {"afterwards"}),
        "consumer_alive": kept["afterwards"] == 1,
        "seconds": round(seconds, 1),
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 unless every event went where it belongs."""
    count = int(arguments[0]) if arguments else COUNT
    with pipeline(LOG_LEVEL="ERROR") as (_, broker, database):
        found = asyncio.run(measure(broker.url, database.dsn, count))
    wrong = ("without_a_letter_or_reason", "letters_too_many", "good_not_stored_once", "bad_stored")
    met = found["consumer_alive"] and not any(found[name] for name in wrong)
    print(json.dumps({"bench": "fuzzed", **found, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
