"""Forks, restores and rollbacks of memories too many for one statement: whole, in slices, in nobody's way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from learnloop_dataplane.lifecycle import retirement
from learnloop_dataplane.postgres import database, sliced_transactions

from ..conftest import Api, eventually, running, settings, superuser
from ..recall.test_recall import ask, indexed, store

BASE = "/api/v1/memory"
MANY, SLICE = 300, 20
# So that one statement about all of them takes 3 s whatever the machine is, and one about a slice 0.2 s.
SLOW = """
CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(0.01); RETURN NEW;
END $$;
CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON agent_memories FOR EACH ROW EXECUTE FUNCTION slow();
"""
AT_WORK = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
LINES = {"accept": "application/x-ndjson", "x-learnloop-namespace": "team-a"}


@pytest.fixture(autouse=True)
def short_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement may take 2 s here, where a slice is 20 memories."""
    monkeypatch.setattr(database, "COMMAND_SECONDS", 2.0)
    monkeypatch.setattr(sliced_transactions, "SLICE", SLICE)
    monkeypatch.setattr(retirement, "SLICE", SLICE)


@pytest.fixture
async def api(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path, pool_size=8)) as started:
        yield started


@asynccontextmanager
async def slowly(dsn: str) -> AsyncIterator[Any]:
    """Every memory that is written takes 10 ms; gives a connection that sees everything."""
    async with superuser(dsn) as connection:
        await connection.execute(SLOW)
        try:
            yield connection
        finally:
            await connection.execute("DROP TRIGGER IF EXISTS slow ON agent_memories")


async def remembering(api: Api, agent: str, **changes: Any) -> list[str]:
    ids = await store(api, agent, [f"fact {index} of the depot" for index in range(MANY)], **changes)
    await indexed(api, agent, MANY)
    return ids


async def post(api: Api, path: str, status: int = 200, **body: Any) -> Any:
    return await api.call("POST", f"{BASE}/{path}", status, json=body)


async def count(connection: Any, agent: str, state: str = "active") -> int:
    query = "SELECT count(*) FROM agent_memories WHERE agent_id = $1 AND state = $2"
    return int(await connection.fetchval(query, agent, state))


async def said(api: Api, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = await api.client.post(f"{BASE}/{path}", headers=LINES, json=body)
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_fork_that_takes_longer_than_a_statement_may_is_whole_and_recalled_at_once(api: Api, dsn: str) -> None:
    await remembering(api, "parent")
    await post(api, "snapshots", 201, agent_id="parent", name="all")
    async with slowly(dsn) as connection:
        lines = await said(api, "snapshots/fork", agent_id="parent", name="all", into="child")
        assert lines[-1] == {"copied": MANY}
        steps = [line["done"] for line in lines[:-1]]
        assert {line["of"] for line in lines[:-1]} == {MANY}
        assert steps == sorted(steps)
        assert 0 < steps[-1] <= MANY
    [first] = (await ask(api, "child", "fact 7 of the depot", k=1))["memories"]
    assert first["content"]["text"] == "fact 7 of the depot"
    same = """
    SELECT count(*) FROM memory_index p JOIN agent_memories m ON m.provenance ->> 'original' = p.memory_id::text
    JOIN memory_index c ON c.memory_id = m.id
    WHERE c.terms = p.terms AND (c.said_at, c.session, c.speaker, c.kind, c.embedder, c.outcome)
        IS NOT DISTINCT FROM (p.said_at, p.session, p.speaker, p.kind, p.embedder, p.outcome)
        AND m.agent_id = 'child'"""
    async with superuser(dsn) as connection:
        assert await connection.fetchval(same) == MANY


async def test_a_fork_that_dies_leaves_nothing_and_can_be_begun_again(api: Api, dsn: str) -> None:
    await remembering(api, "elder")
    await post(api, "snapshots", 201, agent_id="elder", name="all")
    body = {"agent_id": "elder", "name": "all", "into": "heir"}
    async with slowly(dsn) as connection:
        headers = {"x-learnloop-namespace": "team-a"}
        fork = asyncio.create_task(api.client.post(f"{BASE}/snapshots/fork", headers=headers, json=body))
        await eventually(lambda: connection.fetchval(AT_WORK))
        busy = await api.client.post(f"{BASE}/snapshots/fork", headers=headers, json=body)
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "10")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
        assert (await fork).status_code == 503
        left = "SELECT count(*) FROM {} t WHERE t::text LIKE '%heir%'"
        for table in ("agent_memories", "memory_index", "memory_use", "audit_pending"):
            assert await connection.fetchval(left.format(table)) == 0, table
    assert await post(api, "snapshots/fork", 201, **body) == {"copied": MANY}


async def test_a_restore_goes_back_as_a_whole_while_others_store_recall_and_teach(api: Api, dsn: str) -> None:
    ids = await remembering(api, "wise")
    await post(api, "snapshots", 201, agent_id="wise", name="before")
    await post(api, "forget", agent_id="wise", budget=0)
    answer = await ask(api, "neighbour", "anything")
    async with slowly(dsn) as connection:
        restore = asyncio.create_task(said(api, "snapshots/restore", agent_id="wise", name="before"))
        await eventually(lambda: connection.fetchval(AT_WORK))
        assert await count(connection, "wise") == 0, "nothing is half done"
        await store(api, "neighbour", ["the lamp of the depot is new"])
        await store(api, "wise", ["a fact of now"])
        assert [hit["content"]["text"] for hit in (await ask(api, "wise", "fact", k=5))["memories"]] == [
            "a fact of now"
        ]
        taught = {"retrieval_id": answer["retrieval_id"], "reward": 1.0}
        await api.memory.recall_log.flush()
        await post(api, "feedback", **taught)
        own = await ask(api, "wise", "fact", k=5)
        await api.memory.recall_log.flush()
        refused = await post(api, "feedback", 503, retrieval_id=own["retrieval_id"], reward=1.0)
        assert refused["error"]["field"] == "agent_id"
        assert not restore.done()
        assert (await restore)[-1] == {"removed": 0, "returned": len(ids)}
    assert len((await ask(api, "wise", "fact", k=100))["memories"]) == 100
    await post(api, "feedback", retrieval_id=own["retrieval_id"], reward=1.0)


async def test_a_rollback_takes_all_of_an_origin_or_nothing(api: Api, dsn: str) -> None:
    await remembering(api, "reader", origin="web/hoax.example")
    [own] = await store(api, "reader", ["the depot is real"])
    async with slowly(dsn) as connection:
        hung_up = asyncio.create_task(said(api, "origins", origin="web/hoax.example", action="rollback"))
        await eventually(lambda: connection.fetchval(AT_WORK))
        hung_up.cancel()
        await asyncio.gather(hung_up, return_exceptions=True)

        async def over() -> bool:
            return not await connection.fetchval(AT_WORK)

        await eventually(over)
        assert await count(connection, "reader") == MANY + 1
        lines = await said(api, "origins", origin="web/hoax.example", action="rollback")
        assert (lines[-1]["memories"], lines[-1]["agents"]) == (MANY, {"reader": MANY})
        assert await count(connection, "reader", "rolled-back") == MANY
    [hit] = (await ask(api, "reader", "depot", k=5))["memories"]
    assert hit["id"] == own


async def test_what_is_erased_or_quarantined_while_it_is_copied_is_not_in_the_copy(api: Api, dsn: str) -> None:
    await remembering(api, "host")
    await store(api, "host", ["anna likes the lamp"], user_id="anna")
    await store(api, "host", ["a rumour about the lamp"], origin="web/rumour.example")
    async with superuser(dsn) as connection:  # copied first, by the time that they are gone
        first = "UPDATE agent_memories SET created_at = now() - interval '1 h' WHERE text LIKE '%the lamp'"
        await connection.execute(first)
    await post(api, "snapshots", 201, agent_id="host", name="all")
    async with slowly(dsn) as connection:
        fork = asyncio.create_task(post(api, "snapshots/fork", 201, agent_id="host", name="all", into="guest"))
        copying = (
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%forked_from%'"
        )
        await eventually(lambda: connection.fetchval(copying))
        await api.call("PUT", "/api/v1/users/anna/opt-out", 204)
        await post(api, "origins", origin="web/rumour.example", action="quarantine")
        assert not fork.done()
        assert await fork == {"copied": MANY}
        assert await count(connection, "guest") == MANY


async def test_lines_end_with_the_refusal_and_one_that_is_known_at_once_has_its_status(api: Api) -> None:
    body = {"agent_id": "nobody", "name": "never"}
    answer = await api.client.post(f"{BASE}/snapshots/restore", headers=LINES, json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["field"] == "name"
