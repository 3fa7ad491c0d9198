"""Agents of a MemoryService kept to the budgets that their LearningAgents give them, on the real PostgreSQL."""

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
