"""Single statements for a namespace, on connections of the pool."""

import asyncio

import asyncpg
import pytest

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database

from ..conftest import Api

_WHO = "SELECT pg_backend_pid() AS pid, s.namespace FROM set_config('app.namespace', $1, true) AS s(namespace)"


async def test_a_statement_that_is_refused_or_given_up_costs_nobody_a_connection(api: Api) -> None:
    who = _WHO.replace("pg_backend_pid() AS pid", "pg_sleep(60)")
    for _ in range(20):
        with pytest.raises(asyncpg.DivisionByZeroError):
            await api.db.fetch_as("team-a", "SELECT 1 / 0 FROM set_config('app.namespace', $1, true) AS s(namespace)")
        slow = asyncio.create_task(api.db.fetch_as("team-a", who))
        await asyncio.sleep(0.02)  # on its way by now, mostly; given up sooner, it is none the worse
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    [row] = await api.db.fetch_as("team-a", _WHO)
    assert row["namespace"] == "team-a"


async def test_what_a_connection_was_asked_for_one_namespace_it_forgets_before_the_next(dsn: str) -> None:
    database = Database(dsn, pool_size=4)
    database.start()
    await database.ready.wait()
    try:
        for namespace in ("team-a", "team-b"):
            await database.fetch_as(namespace, _WHO)  # by now it is known
        namespaces = [(await database.fetch_as(namespace, _WHO))[0] for namespace in ("team-a", "team-b")]
        assert [row["namespace"] for row in namespaces] == ["team-a", "team-b"]
        assert len({row["pid"] for row in namespaces}) == 1
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT count(*) FROM memory_index") == 0
    finally:
        await database.close()


async def test_going_on_with_a_connection_that_broke_in_the_middle_of_an_answer_means_the_database_is_away(api):
    """asyncpg's error for a ROLLBACK after its server was killed; taken for anything else, a batch of episodes would
    lie for the time NATS waits before it delivers again."""
    with pytest.raises(Unavailable):
        async with api.db.tenant("team-a"):
            raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")
    assert await api.db.namespaces()
