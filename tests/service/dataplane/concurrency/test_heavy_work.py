"""The work for one agent's memory keeps no other agent waiting."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from learnloop_api.wire.memory_budget import MemoryBudget
from learnloop_dataplane.lifecycle import forgetting
from learnloop_dataplane.lifecycle.distillation import CountingDistiller, Episode
from learnloop_dataplane.memories.memory_store import NewMemory

from ..conftest import Api, eventually, running, settings, superuser
from ..recall.test_recall import ask, indexed, store

RETIREMENTS_THAT_WAIT = """
SELECT count(*) = 2 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE agent_memories%'
"""
CONSOLIDATE = "/api/v1/memory/consolidate"


class Slow:
    """A distiller that takes until it may go on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Event()

    async def distil(self, agent: str, episodes: Sequence[Episode]) -> list[NewMemory]:
        self.entered.release()
        await asyncio.to_thread(self.go_on.wait, 200)
        return []


async def test_recalls_are_answered_while_memories_are_consolidated_and_no_third_joins_in(api, monkeypatch):
    for agent in ("one", "two", "three"):
        await store(api, agent, ["the lamp of the depot is broken"])
    slow = Slow()
    monkeypatch.setattr(CountingDistiller, "distil", slow.distil)
    headers = {"x-learnloop-namespace": "team-a"}

    def consolidate(agent: str) -> asyncio.Task[object]:
        return asyncio.create_task(api.call("POST", CONSOLIDATE, json={"agent_id": agent}, headers=headers))

    working = [consolidate("one"), consolidate("two")]
    try:
        for _ in working:
            assert await asyncio.to_thread(slow.entered.acquire, timeout=120)
        assert (await ask(api, "one", "lamp"))["memories"]
        for agent, field in (("one", "agent_id"), ("three", None)):
            refused = await api.client.post(CONSOLIDATE, json={"agent_id": agent}, headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
            assert refused.json()["error"]["field"] == field
        assert not any(task.done() for task in working)
    finally:
        slow.go_on.set()
        await asyncio.gather(*working)
    await api.call("POST", CONSOLIDATE, json={"agent_id": "three"}, headers=headers)


async def test_ten_forgets_at_once_leave_the_pool_to_a_neighbours_store(dsn: str, tmp_path: Path) -> None:
    agents = [f"hoarder-{index}" for index in range(10)]
    async with (
        running(**settings(dsn, tmp_path, pool_size=10)) as api,
        superuser(dsn) as watch,
        superuser(dsn) as holder,
    ):
        for agent in agents:
            await store(api, agent, ["the lamp of the depot is broken", "the gate of the depot is open"])
        for agent in agents:
            await indexed(api, agent, 2)  # the indexer has no work left that waits for these rows

        async def forget(agent: str) -> int:
            body, headers = {"agent_id": agent, "budget": 1}, {"x-learnloop-namespace": "team-a"}
            return (await api.client.post("/api/v1/memory/forget", headers=headers, json=body)).status_code

        async with holder.transaction():
            await holder.execute("SELECT FROM agent_memories WHERE agent_id LIKE 'hoarder-%' FOR UPDATE")
            forgets = [asyncio.create_task(forget(agent)) for agent in agents]
            await eventually(lambda: watch.fetchval(RETIREMENTS_THAT_WAIT))
            await store(api, "neighbour", ["the lamp of the depot is new"])
        assert sorted(await asyncio.gather(*forgets)) == [200] * 2 + [429] * 8


async def test_two_processes_that_forget_together_forget_no_more_than_one(api: Api) -> None:
    await store(api, "shared", [f"trifle {index}" for index in range(20)])
    budget = MemoryBudget(memories=10)
    done = await asyncio.gather(*(forgetting.forget(api.db, "team-a", "shared", budget) for _ in range(2)))
    assert sorted(each.forgotten for each in done) == [0, 10]
    assert len((await ask(api, "shared", "trifle", k=30))["memories"]) == 10
