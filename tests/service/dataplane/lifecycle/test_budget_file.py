"""Agents of a MemoryService kept to the budgets that their LearningAgents give them, on the real PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Api, eventually, running, settings
from ..recall.test_recall import store
from .test_budgets import path, used


class Told:
    """What the operator would write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.budgets({})

    def budgets(self, agents: dict[str, Any], namespace: str = "team-a") -> None:
        self.text(json.dumps({"namespace": namespace, "agents": agents}))

    def text(self, text: str) -> None:
        after = self.file.with_suffix(".next")
        after.write_text(text)
        after.replace(self.file)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path / "budgets.json")


@pytest.fixture
async def swift(dsn: str, tmp_path: Path, told: Told) -> AsyncIterator[Api]:
    """A service that looks at its budgets ten times a second."""
    changes = {"index_check_seconds": 0.1, "agent_budgets_file": str(told.file)}
    async with running(**settings(dsn, tmp_path, **changes)) as started:
        yield started


async def kept(api: Api, agent: str, **more: Any) -> int:
    left = await api.call("GET", f"/api/v1/memory/entries?agent_id={agent}&limit=500", **more)
    return len(left["memories"])


async def down_to(api: Api, agent: str, memories: int) -> Any:
    """The figures, as soon as the file was read and so many memories are left."""

    async def there() -> bool:
        return await kept(api, agent) == memories

    await eventually(there)
    return await used(api, agent, memories)


async def passes(api: Api, agent: str) -> None:
    """Waits until the keeper has gone over this agent, and so over all before it, after now."""
    await api.call("PUT", path(agent), json={"memories": 1000})
    await store(api, agent, ["a thing"])
    await used(api, agent, await kept(api, agent))


async def test_an_agent_over_its_own_budget_forgets_and_its_neighbour_does_not(swift: Api, told: Told) -> None:
    for agent in ("narrow", "neighbour"):
        await store(swift, agent, [f"thing {index}" for index in range(9)])
    memory = {"agent_id": "narrow", "memory_type": "semantic"}
    memories = [{**memory, "content": {"text": f"thing {index}"}} for index in range(9)]
    await swift.call("POST", "/api/v1/memory/store/batch", 201, namespace="team-b", json={"memories": memories})
    told.budgets({"narrow": {"memories": 4}})
    found = await down_to(swift, "narrow", 4)
    assert (found["own"], found["budget"]["memories"], found["forgotten"]) == (None, 4, 5)
    await passes(swift, "zebra")
    assert await kept(swift, "neighbour") == 9
    await swift.call("GET", path("neighbour"), 404)
    assert await kept(swift, "narrow", namespace="team-b") == 9, "another namespace's agent of the same name"

    told.budgets({"narrow": {"memories": 2}})
    assert (await used(swift, "narrow", 2))["forgotten"] == 7
    metrics = (await swift.client.get("/metrics")).text
    assert 'learnloop_memory_held{agent="narrow",namespace="team-a"} 2.0' in metrics


async def test_of_all_limits_the_smallest_holds(dsn: str, tmp_path: Path, told: Told) -> None:
    told.budgets({"many": {"memories": 5}})
    changes = {"index_check_seconds": 0.1, "agent_budgets_file": str(told.file), "memories_per_agent": 6}
    async with running(**settings(dsn, tmp_path, **changes)) as api:
        await store(api, "many", [f"thing {index}" for index in range(9)])
        found = await down_to(api, "many", 5)
        assert found["budget"] == {"memories": 5, "bytes": None}
        await api.call("PUT", path("many"), json={"memories": 3})
        found = await used(api, "many", 3)
        assert found["budget"]["memories"] == 3
        told.budgets({"many": {"memories": 1}})
        found = await used(api, "many", 1)
        assert (found["own"]["memories"], found["budget"]["memories"]) == (3, 1)


@pytest.mark.parametrize("broken", ["", '{"namespace": "team-a", "agents": {"steady": {"memories": 0}'])
async def test_a_broken_file_changes_nothing(swift: Api, told: Told, broken: str) -> None:
    agent = f"steady-{len(broken)}"
    told.budgets({agent: {"memories": 4}})
    await store(swift, agent, [f"thing {index}" for index in range(9)])
    await down_to(swift, agent, 4)
    told.text(broken)
    await refusals(swift)
    for forgotten in (14, 23):
        await store(swift, agent, [f"later {forgotten} {index}" for index in range(9)])

        async def gone(wanted: int = forgotten) -> bool:
            return bool((await swift.call("GET", path(agent)))["forgotten"] == wanted)

        await eventually(gone)
        assert await kept(swift, agent) == 4, "the last good budget holds on"
        told.file.unlink(missing_ok=True)
        await refusals(swift)


async def refusals(api: Api) -> None:
    """Waits for one more."""

    async def count() -> float:
        text = (await api.client.get("/metrics")).text
        return float(text.split("\nlearnloop_memory_budgets_refused_total ")[1].split()[0])

    before = await count()

    async def another() -> bool:
        return await count() > before

    await eventually(another)


async def test_without_a_file_as_by_hand_nobody_forgets(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, index_check_seconds=0.1)) as api:
        await store(api, "free", [f"thing {index}" for index in range(9)])
        await asyncio.sleep(0.4)
        assert await kept(api, "free") == 9
        await api.call("GET", path("free"), 404)
