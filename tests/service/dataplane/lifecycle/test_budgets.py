"""Agents kept to their memory budgets, on the real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from learnloop_api.wire.memory_budget import MemoryBudget

from ..conftest import Api, eventually, running, settings, superuser
from ..recall.test_recall import store

TEAM = {"x-learnloop-namespace": "team-a"}


@pytest.fixture
async def swift(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service that looks at its budgets ten times a second."""
    async with running(**settings(dsn, tmp_path, index_check_seconds=0.1)) as started:
        yield started


def path(agent: str) -> str:
    return f"/api/v1/agents/{agent}/memory-budget"


async def used(api: Api, agent: str, memories: int):
    """The figures, as soon as so many memories are left."""

    async def settled():
        answer = await api.call("GET", path(agent))
        return answer if answer["memories"] == memories else None

    return await eventually(settled)


async def test_half_of_the_memories_go_and_most_of_their_value_stays(swift: Api, dsn: str) -> None:
    random = np.random.default_rng(7)
    worth = random.pareto(1.2, 400)
    judged = np.clip(worth / 8 * random.lognormal(0, 0.6, 400), 0, 1)
    memories = [
        {"agent_id": "hoarder", "memory_type": "semantic", "content": {"text": f"memory {index}"}, "importance": how}
        for index, how in enumerate(judged.tolist())
    ]
    ids = (await swift.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories}))["ids"]
    async with superuser(dsn) as connection:
        await connection.executemany(
            "INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed, helped, hurt)"
            " VALUES ('team-a', $1, $2, now(), $3, $4) ON CONFLICT (namespace, memory_id) DO UPDATE"
            " SET access_count = excluded.access_count, helped = excluded.helped, hurt = excluded.hurt",
            [
                (identity, int(random.poisson(4 * value)), float(random.poisson(value)), float(random.poisson(0.3)))
                for identity, value in zip(ids, worth, strict=True)
            ],
        )
    await swift.call("PUT", path("hoarder"), json={"memories": 200})
    budget = await used(swift, "hoarder", 200)
    assert (budget["forgotten"], budget["last_forgotten"], budget["pinned_above"]) == (200, 200, [])
    left = await swift.call("GET", "/api/v1/memory/entries?agent_id=hoarder&limit=500")
    survivors = {item["id"] for item in left["memories"]}
    value = sum(value for identity, value in zip(ids, worth, strict=True) if identity in survivors)
    assert value >= 0.95 * np.sort(worth)[200:].sum(), "an oracle would have kept the rest, too"
    [record] = await records(swift, "memory.budget.set")
    assert (record["subject"], record["detail"]) == ("agent/hoarder", {"memories": 200})


async def records(api: Api, action: str) -> list:
    async def sealed():
        return (await api.call("GET", f"/api/v1/audit/records?action={action}"))["records"]

    entries = await eventually(sealed)
    return entries


async def test_bytes_have_a_limit_of_their_own_and_what_is_pinned_stays(swift: Api) -> None:
    await store(swift, "mixed", [f"{'x' * 400} {index}" for index in range(20)], importance=0.9)
    await store(swift, "mixed", [f"deed {index}" for index in range(10)], memory_type="episodic")
    await store(swift, "mixed", ["never lose this"], memory_type="episodic", pinned=True, importance=0.0)
    await swift.call("PUT", path("mixed"), json={"memories": 24})
    budget = await used(swift, "mixed", 24)
    await swift.call("PUT", path("mixed"), json={"bytes": budget["bytes"] // 2})

    async def halved():
        now = await swift.call("GET", path("mixed"))
        return now if now["bytes"] <= budget["bytes"] // 2 else None

    now = await eventually(halved)
    assert now["bytes"] > budget["bytes"] // 2 - 1000, "no more goes than must"
    left = await swift.call("GET", "/api/v1/memory/entries?agent_id=mixed")
    assert "never lose this" in {item["content"]["text"] for item in left["memories"]}


async def test_pinned_memories_above_the_budget_are_named_and_kept(swift: Api) -> None:
    await store(swift, "keeper", ["one", "two", "three"], pinned=True)
    await store(swift, "keeper", ["four"])
    await swift.call("PUT", path("keeper"), json={"memories": 2})
    budget = await used(swift, "keeper", 3)
    assert (budget["pinned"], budget["pinned_above"]) == (3, ["memories"])


async def test_a_budget_removed_and_a_bad_one(swift: Api) -> None:
    await swift.call("GET", path("nobody"), 404)
    await swift.call("PUT", path("brief"), json={"memories": 1})
    await swift.call("PUT", path("brief"), json={"memories": 1})
    assert (await swift.call("GET", path("brief")))["own"] == {"memories": 1, "bytes": None}
    await swift.call("GET", path("brief"), 404, namespace="team-b")
    await swift.call("DELETE", path("brief"), 204)
    await swift.call("GET", path("brief"), 404)
    await store(swift, "brief", ["one", "two"])
    await asyncio.sleep(0.4)
    left = await swift.call("GET", "/api/v1/memory/entries?agent_id=brief")
    assert len(left["memories"]) == 2
    for bad, field in (({"memories": -1}, "memories"), ({"x": 1}, "x")):
        refused = await swift.call("PUT", path("brief"), 422, json=bad)
        assert refused["error"]["field"].startswith(field)


async def test_the_services_limit_holds_for_every_agent(dsn: str, tmp_path: Path) -> None:
    changes = {"index_check_seconds": 0.1, "memories_per_agent": 3}
    async with running(**settings(dsn, tmp_path, **changes)) as api:
        await store(api, "anyone", [f"thing {index}" for index in range(9)])
        budget = await used(api, "anyone", 3)
        assert (budget["own"], budget["budget"]["memories"]) == (None, 3)
        await api.call("PUT", path("anyone"), json={"memories": 1000})
        assert (await api.call("GET", path("anyone")))["budget"]["memories"] == 3


async def test_a_budget_is_kept_while_recalls_and_stores_go_on(swift: Api) -> None:
    for page in range(4):
        await store(swift, "busy", [f"page {page} line {index}" for index in range(250)])
    await swift.call("PUT", path("busy"), json={"memories": 100})
    for index in range(20):
        await store(swift, "busy", [f"late {index}"], importance=1.0)
        await swift.call("POST", "/api/v1/memory/retrieve", json={"agent_id": "busy", "context": "late line"})

    async def held() -> bool:
        budget = await swift.call("GET", path("busy"))
        return (budget["memories"], budget["forgotten"]) == (100, 920)

    await eventually(held)
    left = await swift.call("GET", "/api/v1/memory/entries?agent_id=busy&limit=500")
    assert sum(item["content"]["text"].startswith("late") for item in left["memories"]) == 20


async def test_what_an_agent_is_given_in_bulk_is_held_to_its_budget_at_once(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, index_check_seconds=3600)) as api:
        await store(api, "source", [f"thing {index}" for index in range(9)])
        exported = (await api.client.get("/api/v1/memory/export?agent_id=source", headers=TEAM)).content
        budget = MemoryBudget(memories=3)
        assert await api.memory.budgets.put("team-a", "imported", budget)
        assert not await api.memory.budgets.put("team-a", "imported", budget), "the same again changes nothing"
        await api.call("POST", "/api/v1/memory/import?agent_id=imported", 201, content=exported)
        await used(api, "imported", 3)
