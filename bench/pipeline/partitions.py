"""`make bench-pipeline PARTITIONS=1`: what stored history costs those who write and recall; the last line is JSON.

    python -m bench.pipeline.partitions [few] [seconds] [most]

`few` episodes are stored over 31 days of partitions, and then as many as fit into `seconds` of filling, `most` at most.
Each time trajectories are accepted and memories recalled at a fixed rate, through the service (an open loop: a request
is late from when it was due). At last the oldest day goes by retention: how long the partition takes to drop, and how
long its narrow rows take to delete, is told apart. Figures hold for this machine; read the ratios.
"""

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from bench.arguments import numbers
from bench.pipeline.latency import open_loop, spread, trajectory
from bench.pipeline.world import pipeline
from learnloop_dataplane.erasure.retention import Retention
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.partitions import upkeep
from learnloop_sdk.transport.http_client import Http

FEW, SECONDS, MOST = 100_000, 300.0, 10_000_000
DAYS, PART = 31, 20_000
RATE, MEASURED_SECONDS = 40, 25.0
MEMORIES = 300
TARGET_RATIO, TARGET_DROP_SECONDS = 1.2, 1.0
# Episodes that nothing is left to do for: rewarded, remembered, shipped. The steps are twenty, like those sent.
_FILL = """
WITH made AS (INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision,
    started_at, ended_at, received_at, steps, status, episode_return, success, outcome_values, retrieval_ids, labels,
    reward, reward_policy_revision, remembered, credited, warehoused)
    SELECT 'default', 'h' || n, 'agent-' || n % 10, 'cartpole', 'e' || n, 'r1', t.at, t.at, t.at, 20, 'completed', 20,
        true, '{}', '[]', '{}', 0.5, 'r1', true, true, true
    FROM (SELECT n, now() - $3 * random() * interval '1 day' AS at
        FROM generate_series($1::bigint, $2::bigint) n OFFSET 0) t
    RETURNING namespace, trajectory_id, received_at)
INSERT INTO training_transitions (namespace, trajectory_id, received_at, steps)
SELECT namespace, trajectory_id, received_at, $4::jsonb FROM made
"""
_SIZES = """
SELECT pg_total_relation_size('trajectories') AS narrow,
    (SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
        WHERE inhparent = 'training_transitions'::regclass) AS steps
"""


def tell(sentence: str) -> None:
    """Progress, for whoever waits."""
    print(f"[bench-partitions] {sentence}", file=sys.stderr, flush=True)


async def days_of_the_past(connection: Any) -> None:
    """A new database has one partition for all of the past: cut it into the days it would have had."""
    (first, *_) = await upkeep.ranges(connection, upkeep.STEPS)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    await connection.execute(f"DROP TABLE {first.name}")
    day = today - timedelta(days=DAYS)
    bounds = f"FOR VALUES FROM (MINVALUE) TO ('{day.isoformat()}')"
    await connection.execute(f"CREATE TABLE {first.name} PARTITION OF {upkeep.STEPS} {bounds}")
    while day < first.upper:
        following = day + timedelta(days=1)
        bounds = f"FOR VALUES FROM ('{day.isoformat()}') TO ('{following.isoformat()}')"
        name = f"{upkeep.STEPS}_{day:%Y%m%d}"
        await connection.execute(f"CREATE TABLE {name} PARTITION OF {upkeep.STEPS} {bounds}")
        day = following


async def fill(connection: Any, start: int, until: int, seconds: float) -> int:
    """Stores episodes up to the number `until`, or for so long; returns how many there are then."""
    steps, began = json.dumps(trajectory(0)["steps"]), time.monotonic()
    while start < until and time.monotonic() - began < seconds:
        end = min(until, start + PART)
        await connection.execute(_FILL, start + 1, end, float(DAYS), steps)
        start = end
    await connection.execute("VACUUM ANALYZE")  # as autovacuum leaves it, which would work beside the measurement
    await connection.execute("CHECKPOINT")
    return start


async def measured(port: int, offset: int) -> dict[str, Any]:
    """Accepting and recalling, one after the other."""
    pool, base, late = Http(), f"http://127.0.0.1:{port}", 0

    async def send(path: str, body: dict[str, Any], status: int) -> None:
        nonlocal late
        answer = await pool.post(f"{base}{path}", json.dumps(body).encode(), {}, 60.0)
        while answer.status in (429, 503):  # a machine that is busy otherwise: late, not lost
            late += 1
            await asyncio.sleep(0.1)
            answer = await pool.post(f"{base}{path}", json.dumps(body).encode(), {}, 60.0)
        if answer.status != status:
            raise SystemExit(f"{path}: HTTP {answer.status} {answer.body[:300]!r}")

    async def post(number: int) -> None:
        await send("/api/v1/trajectories", trajectory(number + offset), 202)

    async def recall(number: int) -> None:
        body = {"agent_id": "walker", "context": f"where is thing {number % MEMORIES}"}
        await send("/api/v1/memory/retrieve", body, 200)

    if offset == 10**8:
        for number in range(MEMORIES):
            body = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": f"thing {number} is here"}}
            await send("/api/v1/memory/store", body, 201)
    await open_loop(post, RATE, 3)
    await open_loop(recall, RATE, 3)
    accepted = spread(await open_loop(lambda n: post(n + 10**6), RATE, MEASURED_SECONDS))
    recalled = spread(await open_loop(recall, RATE, MEASURED_SECONDS))
    await pool.close()
    load = round(os.getloadavg()[0], 1)
    return {"accepted": accepted, "recalled": recalled, "refused_for_a_while": late, "load": load}


async def forget(dsn: str) -> dict[str, Any]:
    """The oldest day goes: its rows one by one, its steps at once."""
    db = Database(dsn, pool_size=2)
    db.start()
    await asyncio.wait_for(db.ready.wait(), 60)
    connection = await asyncpg.connect(dsn)
    oldest = (await upkeep.ranges(connection, upkeep.STEPS))[1]
    rows = await connection.fetchval(f"SELECT count(*) FROM {oldest.name}")
    size = await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", oldest.name)
    dropped: list[float] = []
    drop = upkeep.drop

    async def timed(dsn: str, names: Any) -> None:
        began = time.perf_counter()
        await drop(dsn, names)
        dropped.append(time.perf_counter() - began)

    upkeep.drop = timed
    began = time.perf_counter()
    await Retention(db, 30, dsn=dsn).run(oldest.upper + timedelta(days=30))
    took = time.perf_counter() - began
    gone = await connection.fetchval("SELECT to_regclass($1) IS NULL", oldest.name)
    await connection.close()
    await db.close()
    return {
        "rows": rows,
        "steps_megabytes": round(size / 1e6, 1),
        "dropped": gone,
        "drop_s": round(sum(dropped), 3),
        "narrow_rows_s": round(took - sum(dropped), 2),
    }


async def measure(product: Any, dsn: str, few: int, seconds: float, most: int) -> dict[str, Any]:
    """Both sizes, and the oldest day."""
    connection = await asyncpg.connect(dsn, command_timeout=600)
    await days_of_the_past(connection)
    await connection.execute("INSERT INTO tenants (namespace) VALUES ('default') ON CONFLICT DO NOTHING")
    tell(f"{few:,} episodes over {DAYS} days …")
    stored = await fill(connection, 0, few, 600)
    small = await measured(product.port, 10**8)
    tell(f"{small}; {seconds:.0f} s of filling …")
    stored = await fill(connection, stored, most, seconds)
    tell(f"{stored:,} are stored")
    large = await measured(product.port, 2 * 10**8)
    sizes = dict(await connection.fetchrow(_SIZES))
    parts = len(await upkeep.ranges(connection, upkeep.STEPS))
    await connection.close()
    forgotten = await forget(dsn)
    ratios = {
        f"{what}_{which}_ratio": round(large[what][which] / small[what][which], 2)
        for what in ("accepted", "recalled")
        for which in ("p50_ms", "p99_ms")
    }
    return {
        "few": few,
        "stored": stored,
        "partitions": parts,
        "at_few": small,
        "at_stored": large,
        **ratios,
        "narrow_gigabytes": round(sizes["narrow"] / 1e9, 2),
        "steps_gigabytes": round(sizes["steps"] / 1e9, 2),
        "oldest_day": forgotten,
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when a ratio or the drop misses its target."""
    told = numbers(__doc__, arguments, few=FEW, seconds=SECONDS, most=MOST)
    with pipeline(RETENTION_DAYS="3650") as (product, _, database):  # the service itself forgets nothing meanwhile
        figures = asyncio.run(measure(product, database.dsn, told.few, told.seconds, told.most))
    day = figures["oldest_day"]
    met = day["dropped"] and day["drop_s"] <= TARGET_DROP_SECONDS
    met &= all(figures[f"{what}_p99_ms_ratio"] <= TARGET_RATIO for what in ("accepted", "recalled"))
    targets = {"target_ratio": TARGET_RATIO, "target_drop_s": TARGET_DROP_SECONDS}
    print(json.dumps({"bench": "partitions", **figures, **targets, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
