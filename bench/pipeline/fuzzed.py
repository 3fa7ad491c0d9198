"""`python -m bench.pipeline.fuzzed [COUNT]`: COUNT (2,000) odd events on a trajectory subject, good ones between.

Half of them are broken for certain, half have one thing changed at random, after which they may be valid or not. The
event's JSON Schema (2020-12, formats asserted), read by a validator that shares nothing with the product, says of each
what must become of it: valid ones are stored once, the others are refused, which takes them out of the stream. Good
ones, sent twice, must be stored once; and the consumer must be alive: an event sent when all is over must be stored
too. Real NATS and PostgreSQL, the product as its image runs it. The last line is one JSON object.
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
from nats.js.errors import NotFoundError

from bench.arguments import numbers
from bench.pipeline.world import pipeline
from learnloop_api import events, names
from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.streams import TRAJECTORIES
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


async def publish(stream: JetStreamContext, messages: list[bytes]) -> list[int]:
    """Returns when all are acknowledged: each one's place in the stream."""
    places: list[int] = []
    for start in range(0, len(messages), 200):
        sent = (stream.publish(SUBJECT, body, timeout=60) for body in messages[start : start + 200])
        places += [ack.seq for ack in await asyncio.gather(*sent)]
    return places


async def settled(stream: JetStreamContext) -> None:
    """Returns when the consumer has nothing left to do."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        info = await stream.consumer_info(TRAJECTORIES, STREAM_DURABLE)
        if info.num_pending == 0 and info.num_ack_pending == 0:
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"the consumer still has work after {SETTLE_SECONDS:.0f} s")


async def refused(stream: JetStreamContext, places: list[int]) -> set[int]:
    """The places whose message left the stream."""
    gone = set()
    for place in places:
        try:
            await stream.get_msg(TRAJECTORIES, place)
        except NotFoundError:
            gone.add(place)
    return gone


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
    places: list[int] = []
    for start in range(0, count, EVERY):
        places += await publish(stream, odd[start : start + EVERY])
        await publish(stream, [good[f"good{start}"]] * 2)
    await settled(stream)
    seconds = time.perf_counter() - started
    await publish(stream, [json.dumps(event("afterwards")).encode()])
    await settled(stream)
    gone = await refused(stream, places)
    await client.close()
    valid = {place: name for place, body in zip(places, odd, strict=True) if (name := verdict(body)) is not None}
    kept = await stored(dsn)
    return {
        "events": count,
        **verdicts(places, valid, kept, gone),
        "good_sent_twice": len(good),
        "good_not_stored_once": sum(kept[name] != 1 for name in good),
        "bad_stored": len(set(kept) - set(good) - set(valid.values()) - {"afterwards"}),
        "consumer_alive": kept["afterwards"] == 1,
        "seconds": round(seconds, 1),
    }


def verdicts(places: list[int], valid: dict[int, str], kept: Counter[str], gone: set[int]) -> dict[str, int]:
    """What schema and consumer each said of the odd events.

    Args:
        places: of all of them; `valid`: of those the schema takes, with their ids.
        kept: how often each id is stored; `gone`: places of refused events.
    """
    return {
        "valid_by_schema": len(valid),
        "rejected": len(gone),
        "valid_but_rejected": len(set(valid) & gone),
        "valid_but_not_stored_once": sum(kept[name] != 1 for name in valid.values()),
        "invalid_but_taken": len(set(places) - set(valid) - gone),
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 unless every event went where it belongs."""
    count = numbers(__doc__, arguments, count=COUNT).count
    with pipeline(LOG_LEVEL="ERROR") as (_, broker, database):
        found = asyncio.run(measure(broker.url, database.dsn, count))
    found["disagreements_with_schema"] = found["valid_but_rejected"] + found["invalid_but_taken"]
    wrong = [
        *("valid_but_not_stored_once", "disagreements_with_schema"),
        *("good_not_stored_once", "bad_stored"),
    ]
    met = found["consumer_alive"] and not any(found[name] for name in wrong)
    print(json.dumps({"bench": "fuzzed", **found, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
