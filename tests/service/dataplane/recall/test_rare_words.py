"""The words of large agents are looked up by equality, under row-level security, and go with their memories."""

from pathlib import Path
from uuid import UUID

from ..conftest import Api, eventually, running, settings
from .test_recall import ask, indexed, invented, store

NAMESPACE = "team-a"


async def _goes_by_words(api: Api) -> bool:
    return bool((await ask(api, "large", "x"))["plan"] == "nearest")


async def test_a_large_agent_finds_rare_words_by_look_up_and_keeps_no_word_of_what_is_gone(
    dsn: str, tmp_path: Path
) -> None:
    async with running(**settings(dsn, tmp_path, exact_up_to=500, index_check_seconds=0.2)) as api:
        await store(api, "large", invented(1500, seed=8))
        [rare] = await store(api, "large", ["the xylophone of the quartz heron"])
        await store(api, "large", invented(400, seed=9))  # it is none of the 300 newest
        await indexed(api, "large", 1901)
        await eventually(lambda: _goes_by_words(api))
        await api.memory.large_agents.follow(NAMESPACE)
        answer = await ask(api, "large", "xylophone", weights={"lexical": 1})
        assert (answer["plan"], answer["memories"][0]["id"]) == ("nearest", rare)
        async with api.db.tenant(NAMESPACE) as connection:
            await connection.execute("SET LOCAL enable_seqscan = off")
            plan = await connection.fetch(
                "EXPLAIN SELECT memory_id FROM memory_words WHERE namespace = $1 AND agent_id = $2 AND word = $3",
                NAMESPACE,
                "large",
                5,
            )
        assert any("Index Cond" in row[0] and "word = 5" in row[0] for row in plan), "security does not keep it off"
        body = {"agent_id": "large", "ids": [rare]}
        await api.call("POST", "/api/v1/memory/delete", json=body)
        async with api.db.tenant(NAMESPACE) as connection:
            left = "SELECT count(*) FROM memory_words WHERE memory_id = $1"
            assert await connection.fetchval(left, UUID(rare)) == 0
        api.memory.large_agents._above = 5000
        await api.memory.large_agents.run(NAMESPACE)
        async with api.db.tenant(NAMESPACE) as connection:
            assert await connection.fetchval("SELECT count(*) FROM memory_words") == 0
