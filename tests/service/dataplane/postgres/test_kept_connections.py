"""Single statements on connections that are kept between them: shared out, mended and given back."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.kept_connections import Statements

from ..conftest import Api

_WHO = "SELECT pg_backend_pid() AS pid, s.namespace FROM set_config('app.namespace', $1, true) AS s(namespace)"


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=3) as pool:
        yield pool


async def _pid(statements: Statements) -> int:
    [row] = await statements.fetch("SELECT pg_backend_pid() AS pid")
    return int(row["pid"])


async def test_one_statement_after_another_goes_over_the_same_connection(pool: asyncpg.Pool) -> None:
    statements = Statements(pool, 1)
    assert len({await _pid(statements) for _ in range(5)}) == 1
    assert pool.get_idle_size() == pool.get_size() - 1
    await statements.close()
    assert pool.get_idle_size() == pool.get_size()


async def test_no_more_connections_are_kept_than_were_asked_for(pool: asyncpg.Pool) -> None:
    statements = Statements(pool, 1)
    rows = await asyncio.gather(*(statements.fetch("SELECT $1::int AS n", number) for number in range(9)))
    assert [row["n"] for [row] in rows] == list(range(9))
    assert pool.get_idle_size() == pool.get_size() - 1
    none = Statements(pool, 0)
    await none.fetch("SELECT 1")
    assert pool.get_idle_size() == pool.get_size() - 1
    await statements.close()


async def test_a_kept_connection_that_the_server_closed_is_replaced(pool: asyncpg.Pool) -> None:
    statements = Statements(pool, 1)
    before = await _pid(statements)
    noticed = asyncio.Event()
    statements._idle[0].add_termination_listener(lambda _: noticed.set())
    async with pool.acquire() as other:
        assert await other.fetchval("SELECT pg_terminate_backend($1, 10000)", before)
    async with asyncio.timeout(120):
        await noticed.wait()
    assert await _pid(statements) != before
    await statements.close()
    assert pool.get_idle_size() == pool.get_size()


async def test_a_statement_that_is_refused_or_given_up_costs_nobody_a_connection(pool: asyncpg.Pool) -> None:
    statements = Statements(pool, 1)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await statements.fetch("SELECT 1 / 0")
    slow = asyncio.create_task(statements.fetch("SELECT pg_sleep(60)"))
    await asyncio.sleep(0.05)  # on its way by now, mostly; given up sooner, it is none the worse
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert pool.get_idle_size() == pool.get_size()
    assert await _pid(statements)
    await statements.close()


async def test_what_a_kept_connection_was_asked_for_one_namespace_it_forgets_before_the_next(dsn: str) -> None:
    database = Database(dsn, pool_size=4)
    database.start()
    await database.ready.wait()
    try:
        for namespace in ("team-a", "team-b"):
            await database.fetch_as(namespace, _WHO)  # by now it is known
        told = [(await database.fetch_as(namespace, _WHO))[0] for namespace in ("team-a", "team-b")]
        assert [row["namespace"] for row in told] == ["team-a", "team-b"]
        assert len({row["pid"] for row in told}) == 1
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT count(*) FROM memory_vec") == 0
    finally:
        await database.close()


async def test_going_on_with_a_connection_that_broke_in_the_middle_of_an_answer_means_the_database_is_away(
    api: Api,
) -> None:
    """What asyncpg says of a ROLLBACK after its server was killed; taken for anything else, a batch of episodes would
    lie for the time NATS waits before it delivers again."""
    with pytest.raises(Unavailable):
        async with api.db.tenant("team-a"):
            raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")
    assert await api.db.namespaces()
