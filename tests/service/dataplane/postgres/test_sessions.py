"""Sessions work in the transaction that named its namespace, and fail as plain SQL does."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlmodel import func, select

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.experience_tables import Artifact


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    database = Database(dsn, pool_size=2)
    database.start()
    await asyncio.wait_for(database.ready.wait(), 30)
    yield database
    await database.close()


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
