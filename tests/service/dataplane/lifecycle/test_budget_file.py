"""Agents of a MemoryService kept to the budgets that their LearningAgents give them, on the real PostgreSQL."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ..conftest import Api, eventually, measured, running, settings
from ..recall.test_recall import store
from .test_budgets import path, used


class BudgetRig:
    """The file as the operator would write it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.budgets({})

    def budgets(self, agents: dict, namespace: str = "team-a") -> None:
        self.text(json.dumps({"namespace": namespace, "agents": agents}))

    def text(self, text: str) -> None:
        after = self.file.with_suffix(".next")
        after.write_text(text)
        after.replace(self.file)


@pytest.fixture
def budget_file(tmp_path: Path) -> BudgetRig:
    return BudgetRig(tmp_path / "budgets.json")


@pytest.fixture
async def swift(dsn: str, tmp_path: Path, budget_file: BudgetRig) -> AsyncIterator[Api]:
    """A service that looks at its budgets ten times a second."""
    changes = {"index_check_seconds": 0.1, "agent_budgets_file": str(budget_file.file)}
    async with running(**settings(dsn, tmp_path, **changes)) as started:
        yield started


async def count(api: Api, agent: str, **more) -> int:
    left = await api.call("GET", f"/api/v1/memory/entries?agent_id={agent}&limit=500", **more)
    return len(left["memories"])


async def down_to(api: Api, agent: str, memories: int):
    """The figures, as soon as the file was read and so many memories are left."""

    async def there() -> bool:
        return await count(api, agent) == memories

    await eventually(there)
    return await used(api, agent, memories)


async def passes(api: Api, agent: str) -> None:
    """Waits until the keeper has gone over this agent, and so over all before it, after now."""
    await api.call("PUT", path(agent), json={"memories": 1000})
    await store(api, agent, ["a thing"])
    await used(api, agent, await count(api, agent))


async def test_an_agent_over_its_own_budget_forgets_and_its_neighbour_does_not(swift, budget_file):
    for agent in ("narrow", "neighbour"):
        await store(swift, agent, [f"thing {index}" for index in range(9)])
    memory = {"agent_id": "narrow", "memory_type": "semantic"}
    memories = [{**memory, "content": {"text": f"thing {index}"}} for index in range(9)]
    await swift.call("POST", "/api/v1/memory/store/batch", 201, namespace="team-b", json={"memories": memories})
    budget_file.budgets({"narrow": {"memories": 4}})
    remaining = await down_to(swift, "narrow", 4)
    assert (remaining["own"], remaining["budget"]["memories"], remaining["forgotten"]) == (None, 4, 5)
    await passes(swift, "zebra")
    assert await count(swift, "neighbour") == 9
    await swift.call("GET", path("neighbour"), 404)
    assert await count(swift, "narrow", namespace="team-b") == 9, "another namespace's agent of the same name"

    budget_file.budgets({"narrow": {"memories": 2}})
    assert (await used(swift, "narrow", 2))["forgotten"] == 7
    await measured(swift, 'learnloop_memory_held{agent="narrow",namespace="team-a"} 2.0')
