"""`python -m bench.pipeline.history [episodes] [steps]`: a whole log is read while its agent goes on recording.

An external agent has so many episodes of so many steps, with their rewards, opinions and credits. The trainer's own
client reads all of them, page by page, as a run does that learns from the log. Meanwhile the agent records RATE more a
second by HTTP (an open loop). The last line is one JSON object; 1 is returned where a goal is missed.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench.arguments import numbers
from bench.pipeline.latency import open_loop, spread, trajectory
from learnloop_api.wire.experience import EpisodeSelection
from learnloop_trainer.store.dataplane import DataPlaneStore
from learnloop_trainer.store.http_retries import Http
from testing.history.long_history import BUSY, NAMESPACE, POLICY, POLICY_REVISION, QUIET, fill_episodes
from testing.servers.data_plane_process import Product, postgres

EPISODES, STEPS, RATE = 100_000, 10, 20
PAGE_P99_MS, WHOLE_SECONDS = 100.0, 300.0
SPEC = {"components": [{"name": "won", "type": "success", "weight": 1}]}
NOWHERE = Path("/nowhere")


class TimedHttp(Http):
    """Notes how long each call takes, its retries included."""

    def __init__(self, base: str) -> None:
        super().__init__(base, NOWHERE, NAMESPACE, 60.0)
        self.seconds: list[float] = []
        self.retried: list[str] = []
        self.waiting = self.retried.append

    def call(self, *arguments: Any, **more: Any) -> httpx.Response | None:
        """As of Http."""
        began = time.perf_counter()
        answer = super().call(*arguments, **more)
        self.seconds.append(time.perf_counter() - began)
        return answer


async def recording(client: httpx.AsyncClient, done: asyncio.Event) -> list[float]:
    """The agent's own episodes, until the log is read."""
    times: list[float] = []

    async def post(number: int) -> None:
        body = trajectory(10**8 + first + number) | {"agent": BUSY}
        answer = await client.post("/api/v1/trajectories", json=body)
        answer.raise_for_status()

    while not done.is_set():
        first = len(times)
        times += await open_loop(post, RATE, 5)
    return times


async def measure(url: str, dsn: str, episodes: int, steps: int) -> dict[str, Any]:
    """Fills the database, and reads all of it."""
    async with httpx.AsyncClient(base_url=url, headers={"x-learnloop-namespace": NAMESPACE}, timeout=60) as client:
        policy = f"/api/v1/rewards/policies/{POLICY}/revisions/{POLICY_REVISION}"
        (await client.put(policy, json=SPEC)).raise_for_status()
        for agent in (QUIET, BUSY):
            told = {"reward_policy": POLICY, "reward_policy_revision": POLICY_REVISION}
            (await client.put(f"/api/v1/agents/{agent}", json=told)).raise_for_status()
        owner = await asyncpg.connect(dsn, command_timeout=600)
        await fill_episodes(owner, episodes, steps)
        await owner.execute("VACUUM ANALYZE")
        await owner.close()
        http, done = TimedHttp(url), asyncio.Event()
        selection = EpisodeSelection(reward_policy=POLICY, reward_policy_revision=POLICY_REVISION)
        writer = asyncio.create_task(recording(client, done))
        began = time.perf_counter()
        found = await asyncio.to_thread(DataPlaneStore(http, "run").episodes, BUSY, selection, 10**12)
        took = time.perf_counter() - began
        done.set()
        recorded = await writer
    return {
        "episodes": len(found),
        "steps": sum(len(one.steps) for one in found),
        "seconds": round(took, 1),
        "page": spread(http.seconds),
        "retried": len(http.retried),
        "recorded_meanwhile": len(recorded),
        "recorded": spread(recorded),
        "load": round(os.getloadavg()[0], 1),
    }


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when a goal is missed."""
    asked = numbers(__doc__, arguments, episodes=EPISODES, steps=STEPS)
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        dsn = str(server.get_uri())
        with Product(dsn, Path(server.pgdata), Path(directory)) as product:
            found = asyncio.run(measure(product.url, dsn, int(asked.episodes), int(asked.steps)))
    met = found["page"]["p99_ms"] <= PAGE_P99_MS and found["seconds"] <= WHOLE_SECONDS
    goals = {"page_p99_ms_goal": PAGE_P99_MS, "seconds_goal": WHOLE_SECONDS}
    print(json.dumps({"bench": "history", **found, **goals, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
