"""Work on all memories of an agent: many short statements in one transaction, so that it may take minutes and is still
done whole or not at all. Nothing that waits for it is in the way of a recall or a store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.postgres.database import Database

SLICE = 2000
"""Memories of one statement that writes: far below what one may take (`COMMAND_SECONDS`)."""
SECONDS = 300.0
"""For a statement that reads all memories of an agent, or waits for one that does."""
LONGEST_SECONDS = 1800.0
"""For everything together."""
BUSY_SECONDS = 10
# Held together by whoever teaches an agent or forgets by its budget, alone by whoever changes all its memories: the
# former ask whether it is free and come again later, because they have others to see to.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('whole/' || $1 || '/' || $2, 0))"
_HOLD = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended('whole/' || $1 || '/' || $2, 0))"


class Busy(Unavailable):
    """All memories of an agent are being changed. Whoever has others to see to does not wait for that."""

    def __init__(self, agent: str) -> None:
        message = "all memories of this agent are being changed; nothing was written, send the request again"
        ApiError.__init__(self, 503, message, field="agent_id", value=agent, retry_after=BUSY_SECONDS)


class Progress:
    """How far work has come: `done` of `of` memories, both 0 while it is finding out which."""

    def __init__(self) -> None:
        self.done = 0
        self.of = 0


@asynccontextmanager
async def whole(db: Database, namespace: str) -> AsyncIterator[Any]:
    """A tenant's transaction that may take as long as LONGEST_SECONDS.

    Raises:
        Unavailable: as for `Database.tenant`; nothing was changed.
        ApiError: 503, it took longer; nothing was changed.
    """
    try:
        async with asyncio.timeout(LONGEST_SECONDS), db.tenant(namespace) as connection:
            yield connection
    except TimeoutError as error:
        message = f"not done within {LONGEST_SECONDS:.0f} s, so nothing was changed; try again in a calm hour"
        raise ApiError(503, message, retry_after=60) from error


async def pages(connection: Any, statement: str, *arguments: Any) -> AsyncIterator[list[Any]]:
    """The rows of a statement, a slice at a time, all as of its beginning; what is written meanwhile changes none."""
    cursor = await connection.cursor(statement, *arguments, timeout=SECONDS)
    while rows := await cursor.fetch(SLICE, timeout=SECONDS):
        yield rows


async def alone(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends nobody else changes all memories of this agent, teaches it or forgets for it."""
    await connection.execute(_ALONE, namespace, agent, timeout=SECONDS)


async def hold(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends nobody begins to change all memories of this agent.

    Raises:
        Busy: somebody has begun.
    """
    if not await connection.fetchval(_HOLD, namespace, agent):
        raise Busy(agent)
