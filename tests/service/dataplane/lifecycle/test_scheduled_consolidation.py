"""Consolidation without a request, on the real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from learnloop_dataplane.lifecycle.consolidation import ENOUGH

from ..conftest import Api, eventually, measured, running, settings, superuser
from ..recall.test_recall import ask

LOCK = "SELECT pg_advisory_lock(hashtextextended('team-a/' || $1, 7))"


@pytest.fixture
async def eager(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service that looks ten times a second."""
    async with running(**settings(dsn, tmp_path, consolidate_seconds=0.1)) as started:
        yield started


async def live(api: Api, agent: str, episodes: int, first: int = 0) -> None:
    """Episodes of one task, every second of which succeeded."""
    memories = [
        {
            "agent_id": agent,
            "memory_type": "episodic",
            "content": {"text": f"docking, try {index}", "task": "docking", "success": index % 2 == 0},
        }
        for index in range(first, first + episodes)
    ]
    await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})


async def passes(dsn: str, agent: str) -> list:
    """Their records in the audit trail, sealed or not."""
    async with superuser(dsn) as connection:
        rows = await connection.fetch(
            "SELECT actor, detail::jsonb ->> 'looked_at' AS looked_at FROM (SELECT actor, action, subject, detail::text"
            " FROM audit_pending UNION ALL SELECT actor, action, subject, detail::text FROM audit_log) a"
            " WHERE action = 'memory.consolidation' AND subject = $1",
            f"agent/{agent}",
        )
    return [(row["actor"], row["looked_at"]) for row in rows]


async def facts(api: Api, agent: str) -> list[str]:
    recalled = await ask(api, agent, "docking", k=100)
    return [hit["content"]["text"] for hit in recalled["memories"] if hit["memory_type"] == "semantic"]


async def test_episodes_become_facts_without_anybody_asking_and_newer_facts_when_there_are_more(eager, dsn):
    await live(eager, "pilot", ENOUGH)

    async def learned(episodes: int) -> bool:
        return any(text.startswith(f"docking: {episodes} episodes") for text in await facts(eager, "pilot"))

    assert await eventually(lambda: learned(ENOUGH))
    assert await passes(dsn, "pilot") == [("system:learnloop", str(ENOUGH))]
    await live(eager, "pilot", ENOUGH, first=ENOUGH)
    assert await eventually(lambda: learned(2 * ENOUGH))
    assert len(await facts(eager, "pilot")) == 1
    await measured(
        eager,
        'learnloop_memory_consolidations_total{namespace="team-a"} 2.0',
        'learnloop_memory_consolidated_total{namespace="team-a",what="distilled"}',
        'learnloop_memory_consolidations_due{namespace="team-a"} 0.0',
    )


async def test_few_new_memories_are_left_until_there_are_enough(eager: Api, dsn: str) -> None:
    await live(eager, "novice", ENOUGH - 1)
    await live(eager, "expert", ENOUGH)

    assert await eventually(lambda: passes(dsn, "expert"))
    assert await passes(dsn, "novice") == []
    await live(eager, "novice", 1, first=ENOUGH)

    assert await eventually(lambda: passes(dsn, "novice"))


async def test_a_pass_that_was_asked_for_counts(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path)) as api:
        await live(api, "asked", ENOUGH)
        await api.call("POST", "/api/v1/memory/consolidate", json={"agent_id": "asked"})
    async with running(**settings(dsn, tmp_path, consolidate_seconds=0.1)) as api:
        await live(api, "another", ENOUGH)

        assert await eventually(lambda: passes(dsn, "another"))
        assert await passes(dsn, "asked") == []


async def test_of_two_replicas_one_works_and_each_agent_is_seen_to_once(dsn: str, tmp_path: Path) -> None:
    one = running(**settings(dsn, tmp_path, consolidate_seconds=3600))
    two = running(**settings(dsn, tmp_path, consolidate_seconds=3600))
    async with superuser(dsn) as connection, one as first, two as second:
        for agent in ("red", "green", "blue"):
            await live(first, agent, ENOUGH)
        for agent in ("red", "green", "blue"):
            await connection.execute(LOCK, agent)
        assert await first.memory.consolidation.run("team-a") == 0
        await connection.execute("SELECT pg_advisory_unlock_all()")
        for _ in range(3):
            await asyncio.gather(first.memory.consolidation.run("team-a"), second.memory.consolidation.run("team-a"))
        assert [len(await passes(dsn, agent)) for agent in ("red", "green", "blue")] == [1, 1, 1]


async def test_an_erased_agent_leaves_no_time_of_its_consolidation(eager: Api, dsn: str) -> None:
    await live(eager, "leaving", ENOUGH)

    async def noted() -> bool:
        async with superuser(dsn) as connection:
            query = "SELECT count(*) FROM memory_consolidations WHERE agent_id = 'leaving'"
            return bool(await connection.fetchval(query))

    assert await eventually(noted)
    await eager.call("POST", "/api/v1/erasure", json={"agent_id": "leaving"})
    assert not await noted()
