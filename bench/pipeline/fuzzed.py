"""`python -m bench.pipeline.fuzzed [COUNT]`: COUNT (2,000) odd events on a trajectory subject, good ones between.

Half of them are broken for certain, half have one thing changed at random, after which they may be valid or not. The
event's JSON Schema (2020-12, formats asserted), read by a validator that shares nothing with the product, says of each
what must become of it: valid ones are stored once, the others never. Good ones, sent twice, must be stored once; and
the consumer must be alive: an event sent when all is over must be stored too. Real NATS and PostgreSQL, the product as
its image runs it. The last line is one JSON object.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import asyncpg
import jsonschema_rs
import nats
import orjson
from nats.js.client import JetStreamContext

from bench.arguments import numbers
from bench.pipeline.world import pipeline
from learnloop_api import events, names
from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.connection import TRAJECTORIES
from testing.messages.fuzzed_events import AGENT, doubtful, event, fuzzed

COUNT, EVERY, SEED = 2000, 20, 7
NAMESPACE = "fuzz"
SUBJECT = f"{names.SUBJECT_TRAJECTORY}.{NAMESPACE}.{AGENT}"
SETTLE_SECONDS = 300.0


def judge() -> Any:
    """bytes → the trajectory's id where the schema takes it on this subject, else None."""
    schema = jsonschema_rs.Draft202012Validator(events.schema(names.SUBJECT_TRAJECTORY), validate_formats=True)

    def verdict(data: bytes) -> str | None:
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            return None
        # What no schema can say: the subject names the agent too.
        return body["trajectory_id"] if schema.is_valid(body) and body["agent"] == AGENT else None

    return verdict


async def publish(stream: JetStreamContext, messages: list[bytes]) -> None:
    """Returns when all are acknowledged."""
    for start in range(0, len(messages), 200):
        sent = (stream.publish(SUBJECT, body, timeout=60) for body in messages[start : start + 200])
        await asyncio.gather(*sent)


async def settled(stream: JetStreamContext) -> None:
    """Returns when the consumer has nothing left to do."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        info = await stream.consumer_info(TRAJECTORIES, STREAM_DURABLE)
        if info.num_pending == 0 and info.num_ack_pending == 0:
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"the consumer still has work after {SETTLE_SECONDS:.0f} s")


async def stored(dsn: str) -> Counter[str]:
    """How often each trajectory is in the table."""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = $1", NAMESPACE)
    await connection.close()
    return Counter(row["trajectory_id"] for row in rows)


async def measure(url: str, dsn: str, count: int) -> dict[str, Any]:
    """Sends all of it and counts."""
    rng, verdict = random.Random(SEED), judge()
    odd = [fuzzed(rng, number) if number % 2 else doubtful(rng, number) for number in range(count)]
    good = {f"good{number}": json.dumps(event(f"good{number}")).encode() for number in range(0, count, EVERY)}
    client = await nats.connect(url)
    stream = client.jetstream(timeout=60)
    started = time.perf_counter()
    for start in range(0, count, EVERY):
        await publish(stream, odd[start : start + EVERY])
        await publish(stream, [good[f"good{start}"]] * 2)
    await settled(stream)
    seconds = time.perf_counter() - started
    await publish(stream, [json.dumps(event("afterwards")).encode()])
    await settled(stream)
    await client.close()
    valid = [name for body in odd if (name := verdict(body)) is not None]
    counts = await stored(dsn)
    return {
        "events": count,
        "valid_by_schema": len(valid),
        "valid_but_not_stored_once": sum(counts[name] != 1 for name in valid),
        "good_sent_twice": len(good),
        "good_not_stored_once": sum(counts[name] != 1 for name in good),
        "bad_stored": len(set(counts) - set(good) - set(valid) - {"afterwards"}),
        "consumer_alive": counts["afterwards"] == 1,
        "seconds": round(seconds, 1),
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 unless every event went where it belongs."""
    count = numbers(__doc__, arguments, count=COUNT).count
    with pipeline(LOG_LEVEL="ERROR") as (_, broker, database):
        result = asyncio.run(measure(broker.url, database.dsn, count))
    result["disagreements_with_schema"] = result["valid_but_not_stored_once"] + result["bad_stored"]
    wrong = ("disagreements_with_schema", "good_not_stored_once")
    met = result["consumer_alive"] and not any(result[name] for name in wrong)
    print(json.dumps({"bench": "fuzzed", **result, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
