"""`python -m bench.pipeline.latency`: how long a trajectory takes to be durable, and its reward to be computed.

Accepted: POST /api/v1/trajectories at a fixed rate (open loop: a request is late from when it was due), answered after
JetStream's PubAck; and the SDK's way, a publish straight to NATS until its PubAck. The last line is one JSON object;
milliseconds. Reward:

- `reward_worker`: each stored trajectory's own time, in a transaction of its own: the worker takes one at a time, reads
  it, evaluates it, writes its reward and the agent's statistics, and commits durably;
- `reward_alone`: the same from end to end: the one trajectory that waits is looked for, rewarded and committed, and the
  figures of /metrics are set;
- `reward_worker_amortised`: as the worker really goes about what has piled up, up to 200 in a transaction: the time of
  each batch divided by its size, which says how many it can do and not how long one waits;
- `reward_calculate_http`: `POST /rewards/calculate` at the fixed rate, which computes one reward and keeps nothing.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import nats

from bench.arguments import numbers
from bench.pipeline.chaos import register
from bench.pipeline.world import pipeline
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards import reward_worker
from learnloop_dataplane.rewards.reward_tables import Policies
from learnloop_dataplane.rewards.reward_worker import Weigher
from learnloop_sdk.http_client import Http

RATE, SECONDS = 100, 30
STEPS = 20
ALONE = 1000  # trajectories
TARGET_ACCEPTED_MS, TARGET_REWARD_MS = 10.0, 5.0


def trajectory(number: int) -> dict[str, Any]:
    """Twenty steps, 3 kB."""
    now = datetime.now(UTC).isoformat()
    step = {"observation": [0.1, 0.2, 0.3, 0.4], "action": 1, "log_prob": -0.69, "reward": 1.0}
    return {
        "trajectory_id": f"t-{number}",
        "agent": f"agent-{number % 10}",
        "task": "cartpole",
        "episode_id": f"e-{number}",
        "policy_revision": "3f9a2c81",
        "started_at": now,
        "ended_at": now,
        "steps": [step] * STEPS,
        "outcome": {"status": "completed", "episode_return": 20.0, "success": True},
    }


def spread(times: list[float]) -> dict[str, float]:
    """p50, p99 and how many, in milliseconds."""
    ordered = sorted(times)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "n": len(ordered),
    }


async def open_loop(send: Callable[[int], Awaitable[None]], rate: int, seconds: float) -> list[float]:
    """Seconds from when each call was due until it was answered."""
    start, times, tasks = time.perf_counter() + 0.05, [], set()

    async def one(number: int) -> None:
        await send(number)
        times.append(time.perf_counter() - (start + number / rate))

    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        tasks.add(task := asyncio.create_task(one(number)))
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return times


async def accepted(port: int, url: str, rate: int, seconds: float) -> dict[str, Any]:
    """Both ways in."""
    pool, base, refused = Http(), f"http://127.0.0.1:{port}", 0

    async def send(path: str, body: dict[str, Any], status: int) -> None:
        nonlocal refused
        answer = await pool.post(f"{base}{path}", json.dumps(body).encode(), {}, 60.0)
        while answer.status == 503:  # a machine that is busy otherwise; the request is late, not lost
            refused += 1
            await asyncio.sleep(0.1)
            answer = await pool.post(f"{base}{path}", json.dumps(body).encode(), {}, 60.0)
        if answer.status != status:
            raise SystemExit(f"{path}: HTTP {answer.status} {answer.body[:300]!r}")

    async def post(number: int) -> None:
        await send("/api/v1/trajectories", trajectory(number), 202)

    async def calculate(number: int) -> None:
        result = {"episode_return": 20.0, "success": True, "steps": STEPS, "values": {}}
        body = {"task_id": f"t{number}", "reward_policy": "p", "reward_policy_revision": "r1", "result": result}
        await send("/api/v1/rewards/calculate", body, 200)

    await open_loop(post, rate, 1)
    by_http = spread(await open_loop(lambda n: post(n + 10**6), rate, seconds))
    calculated = spread(await open_loop(calculate, rate, seconds / 3))
    await pool.close()
    broker = await nats.connect(url)
    stream = broker.jetstream()

    async def publish(number: int) -> None:
        body = trajectory(number + 2 * 10**6)
        subject = f"agent.rl.trajectory.v1.default.{body['agent']}"
        await stream.publish(subject, json.dumps(body).encode(), headers={"Nats-Msg-Id": body["trajectory_id"]})

    by_nats = spread(await open_loop(publish, rate, seconds))
    await broker.close()
    figures = {"accepted_http": by_http, "accepted_nats": by_nats, "reward_calculate_http": calculated}
    return figures | {"asked_again_after_503": refused}


async def rewarded(dsn: str, batch: int) -> dict[str, float]:
    """Seconds of a trajectory when the worker takes up to `batch` of those above together: all are scored again."""
    db = Database(dsn, pool_size=2)
    db.start()
    await asyncio.wait_for(db.ready.wait(), 60)
    async with db.tenant("default") as connection:
        await connection.execute("UPDATE trajectories SET reward = NULL")
        await connection.execute("DELETE FROM reward_history")
    times: list[float] = []

    class Timed(reward_worker.RewardWorker):
        async def _batch(self, namespace: str, whose: Weigher) -> int:
            started = time.perf_counter()
            count = await super()._batch(namespace, whose)
            times.extend([(time.perf_counter() - started) / count] * count if count else [])
            return count

    await Timed(db, Policies(db, lambda _: None), Metrics(), announce=True, batch=batch).run("default")
    await db.close()
    return spread(times)


async def rewarded_alone(dsn: str, count: int = ALONE) -> dict[str, float]:
    """Seconds of a whole pass of the worker when one trajectory waits for its reward."""
    db = Database(dsn, pool_size=2)
    db.start()
    await asyncio.wait_for(db.ready.wait(), 60)
    one_pass = reward_worker.RewardWorker(db, Policies(db, lambda _: None), Metrics(), announce=True)
    async with db.tenant("default") as connection:
        rows = await connection.fetch("SELECT trajectory_id FROM trajectories ORDER BY seq LIMIT $1", count)
    while await one_pass.run("default"):
        pass  # a turn of the measurement before may have left some
    times: list[float] = []
    for (trajectory_id,) in rows:
        async with db.tenant("default") as connection:
            await connection.execute("DELETE FROM reward_history WHERE trajectory_id = $1", trajectory_id)
            await connection.execute("UPDATE trajectories SET reward = NULL WHERE trajectory_id = $1", trajectory_id)
        started = time.perf_counter()
        if await one_pass.run("default") != 1:
            raise SystemExit(f"{trajectory_id}: one trajectory waited for its reward, not one was rewarded")
        times.append(time.perf_counter() - started)
    await db.close()
    return spread(times)


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when one misses its target."""
    seconds = numbers(__doc__, arguments, seconds=float(SECONDS)).seconds
    with pipeline() as (product, broker, database):
        register(product)
        figures = asyncio.run(accepted(product.port, broker.url, RATE, seconds))
        product.stop()  # it would compute the same rewards first
        figures["reward_worker"] = asyncio.run(rewarded(database.dsn, 1))
        figures["reward_alone"] = asyncio.run(rewarded_alone(database.dsn))
        figures["reward_worker_amortised"] = asyncio.run(rewarded(database.dsn, reward_worker.BATCH))
    met = all(figures[way]["p99_ms"] <= TARGET_ACCEPTED_MS for way in ("accepted_http", "accepted_nats"))
    rewards = ("reward_worker", "reward_alone", "reward_calculate_http")
    met &= all(figures[way]["p99_ms"] <= TARGET_REWARD_MS for way in rewards)
    targets = {"target_accepted_p99_ms": TARGET_ACCEPTED_MS, "target_reward_p99_ms": TARGET_REWARD_MS}
    print(json.dumps({"bench": "latency", "rate_per_s": RATE, **figures, **targets, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
