"""`python -m bench.pipeline.history [episodes] [steps]`: a whole log is read while its agent goes on recording.

The trainer's own client, in a process of its own, reads every episode of one agent, page by page, as a run does that
learns from the log. Meanwhile the agent records RATE episodes a second by HTTP (an open loop). The last line is one
JSON object.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench.arguments import numbers
from bench.pipeline.latency import open_loop, spread, trajectory
from learnloop_api.wire.trajectory import EpisodeSelection
from learnloop_trainer.store.data_plane_store import DataPlaneStore, Http
from testing.history.long_history import BUSY, NAMESPACE, POLICY, POLICY_REVISION, QUIET, fill_episodes
from testing.servers.data_plane_process import Product, postgres

EPISODES, STEPS, RATE = 100_000, 10, 20
PAGE_P99_MS, WHOLE_SECONDS = 100.0, 300.0
REWARDED = {"reward_policy": POLICY, "reward_policy_revision": POLICY_REVISION}
SPEC = {"components": [{"name": "won", "type": "success", "weight": 1}]}


class TimedHttp(Http):
    """Notes the seconds of each call, its retries included."""

    def __init__(self, base: str) -> None:
        super().__init__(base, Path("/nowhere"), NAMESPACE, 60.0)
        self.seconds: list[float] = []

    def call(self, *arguments: Any, **more: Any) -> httpx.Response | None:
        """As of Http."""
        began = time.perf_counter()
        answer = super().call(*arguments, **more)
        self.seconds.append(time.perf_counter() - began)
        return answer


def read(url: str) -> tuple[int, list[float]]:
    """Read the whole log. Returns how many episodes it has, and the seconds of each page.

    In the process that records, the objects of 100,000 episodes would stop the recording's own event loop.
    """
    http = TimedHttp(url)
    return len(DataPlaneStore(http, "run").episodes(BUSY, EpisodeSelection(**REWARDED), 10**12)), http.seconds


async def record(client: httpx.AsyncClient, done: asyncio.Event) -> list[float]:
    """Record episodes until the log is read. Returns the seconds of each."""
    times: list[float] = []

    async def post(number: int) -> None:
        body = trajectory(10**8 + first + number) | {"agent": BUSY}
        (await client.post("/api/v1/trajectories", json=body)).raise_for_status()

    while not done.is_set():
        first = len(times)
        times += await open_loop(post, RATE, 5)
    return times


async def measure(url: str, dsn: str, episodes: int, steps: int) -> dict[str, Any]:
    """Fill the database, then read all of it."""
    async with httpx.AsyncClient(base_url=url, headers={"x-learnloop-namespace": NAMESPACE}, timeout=60) as client:
        policy = f"/api/v1/rewards/policies/{POLICY}/revisions/{POLICY_REVISION}"
        (await client.put(policy, json=SPEC)).raise_for_status()
        for agent in (QUIET, BUSY):
            (await client.put(f"/api/v1/agents/{agent}", json=REWARDED)).raise_for_status()
        owner = await asyncpg.connect(dsn, command_timeout=600)
        await fill_episodes(owner, episodes, steps)
        await owner.execute("VACUUM ANALYZE")
        await owner.close()
        done = asyncio.Event()
        writer = asyncio.create_task(record(client, done))
        began = time.perf_counter()
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            count, pages = await asyncio.get_running_loop().run_in_executor(apart, read, url)
        seconds = time.perf_counter() - began
        done.set()
        recorded = await writer
    return {
        "episodes": count,
        "seconds": round(seconds, 1),
        "page": spread(pages),
        "recorded": spread(recorded),
        "load": round(os.getloadavg()[0], 1),
    }


def main(arguments: list[str]) -> int:
    """Print the figures. Returns 1 where a goal is missed."""
    sizes = numbers(__doc__, arguments, episodes=EPISODES, steps=STEPS)
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        dsn = str(server.get_uri())
        with Product(dsn, Path(server.pgdata), Path(directory)) as product:
            figures = asyncio.run(measure(product.url, dsn, sizes.episodes, sizes.steps))
    met = figures["page"]["p99_ms"] <= PAGE_P99_MS and figures["seconds"] <= WHOLE_SECONDS
    print(json.dumps({"bench": "history", **figures, "goals": [PAGE_P99_MS, WHOLE_SECONDS], "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
