"""Rows that another analyzer cut are cut again while recall goes on, and are then found by any inflection."""

from pathlib import Path
from typing import Any

from ..conftest import Api, eventually, running, settings, superuser

OLD = """
UPDATE memory_index SET analyzer = 'older',
    terms = (SELECT terms FROM memory_index WHERE agent_id = 'stranger' LIMIT 1) WHERE agent_id = 'upgraded'
"""
LEFT = "SELECT count(*) FROM memory_index WHERE analyzer IS DISTINCT FROM 'english-2'"


async def store(api: Api, agent: str, texts: list[str]) -> list[str]:
    memories = [{"agent_id": agent, "memory_type": "semantic", "content": {"text": text}} for text in texts]
    answer = await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
    ids: list[str] = answer["ids"]
    return ids


async def found(api: Api, agent: str, context: str, **changes: Any) -> list[str]:
    body = {"agent_id": agent, "context": context, "k": 1} | changes
    return [hit["id"] for hit in (await api.call("POST", "/api/v1/memory/retrieve", json=body))["memories"]]


async def test_rows_from_before_an_upgrade_are_cut_again(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1")) as api:
        ids = await store(api, "upgraded", [f"she was camping near lake number{n}" for n in range(700)])
        await store(api, "stranger", ["nothing of the kind"])

        async def indexed() -> bool:
            async with superuser(dsn) as watcher:
                return await watcher.fetchval("SELECT count(*) FROM memory_index") == 701

        await eventually(indexed)
        async with superuser(dsn) as watcher:
            await watcher.execute(OLD)
            assert await watcher.fetchval(LEFT) == 700
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1")) as api:

        async def cut() -> bool:
            async with superuser(dsn) as watcher:
                return await watcher.fetchval(LEFT) == 0

        await eventually(cut)
        assert await found(api, "upgraded", "camps by the number123") == [ids[123]]


async def test_another_language_cuts_everything_again(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1")) as api:
        [first, _] = await store(api, "german", ["Die Rechnungen liegen im Keller", "Der Drucker steht im Flur"])
        assert await found(api, "german", "Rechnungen") == [first]
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1", language="german")) as api:

        async def cut() -> bool:
            hits = await api.call(
                "POST",
                "/api/v1/memory/retrieve",
                json={"agent_id": "german", "context": "die Rechnung", "k": 2},
            )
            return bool(hits["memories"][0]["id"] == first and hits["memories"][0]["score"] > 0)

        await eventually(cut)
