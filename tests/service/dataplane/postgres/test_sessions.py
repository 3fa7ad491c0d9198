"""Sessions work in the transaction that named its namespace, and fail as plain SQL does."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlmodel import func, select

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.experience_tables import Artifact, TrainingRunRow
from learnloop_dataplane.postgres.row_level_security import SETTING


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    database = Database(dsn, pool_size=2)
    database.start()
    await asyncio.wait_for(database.ready.wait(), 30)
    yield database
    await database.close()


async def test_a_session_and_plain_sql_share_a_transaction_and_its_namespace(db: Database) -> None:
    heartbeat = {"step": 2**70, "figures": {"loss": 0.5}}
    async with db.session("team-a") as session:
        run = await session.locked(TrainingRunRow(namespace="team-a", job="walk"))
        run.heartbeat = heartbeat
        await session.flush()
        stored = await session.raw.fetchrow("SELECT heartbeat, proof FROM training_runs")
    assert isinstance(stored["heartbeat"], str), "plain SQL reads jsonb as text"
    assert stored["proof"] is None, "nothing is NULL, not JSON's null"
    async with db.session("team-a") as session:
        again = await session.get_one(TrainingRunRow, ("team-a", "walk"))
    async with db.session("team-b") as session:
        others = (await session.exec(select(TrainingRunRow))).all()
    assert (again.heartbeat, others) == (heartbeat, [])


def artifact(letter: str) -> Artifact:
    return Artifact(namespace="team-a", sha256=letter * 64, size_bytes=1)


async def test_what_an_error_cuts_short_is_not_written(db: Database) -> None:
    async def fail(cause: str) -> None:
        async with db.session("team-a") as session:
            await session.insert(artifact("b"))
            await session.raw.execute(cause)
            session.add(artifact("a"))

    async with db.session("team-a") as session:
        assert [await session.insert(artifact("a")), await session.insert(artifact("a"))] == [True, False]
    with pytest.raises(asyncpg.UniqueViolationError):
        await fail("SELECT 1")
    with pytest.raises(Unavailable):
        await fail("SET TRANSACTION READ ONLY")
    async with db.session("team-a") as session:
        assert [one.sha256 for one in await session.exec(select(Artifact))] == ["a" * 64]


async def test_a_cancelled_session_gives_its_connection_back(db: Database) -> None:
    async def wait() -> None:
        async with db.session("team-a") as session:
            await session.exec(select(func.pg_sleep(60)))

    for _ in range(3):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with db.session("team-a") as session:
        assert (await session.exec(select(1))).one() == 1


async def test_open_sessions_keep_to_their_own_connections(db: Database) -> None:
    named = select(func.current_setting(SETTING))
    async with db.session("team-a") as outer, db.session("team-b") as inner:
        assert [(await inner.exec(named)).one(), (await outer.exec(named)).one()] == ["team-b", "team-a"]


async def test_a_row_that_another_transaction_deletes_is_inserted_again(db: Database) -> None:
    key = {"namespace": "team-a", "job": "walk"}

    async def locked() -> TrainingRunRow:
        async with db.session("team-a") as session:
            return await session.locked(TrainingRunRow(**key, attempt=1))

    await locked()
    async with db.tenant("team-a") as connection:
        await connection.execute("DELETE FROM training_runs")
        other = asyncio.create_task(locked())
        await asyncio.sleep(0.5)
        assert not other.done()
    assert (await other).attempt == 1
