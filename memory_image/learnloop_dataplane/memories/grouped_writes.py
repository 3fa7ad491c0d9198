"""Single stores that come at the same time share a transaction: one round trip and one wait for the disk for all."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from learnloop_dataplane.audit.chain import actor
from learnloop_dataplane.concurrency.batching import Together
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.memories.memory_store import NewMemory, Written, insert_now, known_ids
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.text.analysis import Analyzer

MOST_TOGETHER = 64
AT_ONCE = 2  # while one transaction waits for the disk, the next is written

Stored = tuple[UUID, bool]


class Writer:
    """Stores memories one by one, as far as callers can tell.

    Args:
        deferred: is told the namespaces in which memories wait for the indexer.
    """

    def __init__(self, db: Database, analyzer: Analyzer, embedder: Embedder, deferred: Callable[[str], None]) -> None:
        self._db = db
        self._analyzer = analyzer
        self._embedder = embedder
        self._deferred = deferred
        self._together: Together[Written, Stored] = Together(self._write, most=MOST_TOGETHER, at_once=AT_ONCE)

    async def store(self, namespace: str, memory: NewMemory) -> Stored:
        """The memory's id, and whether it was there already under the same idempotency key; it is durable by then.

        Raises:
            ApiError: 409, the key was used for something else.
            Unavailable: nothing was written.
        """
        return await self._together.do(namespace, (memory, actor.get()))

    async def _write(self, namespace: str, written: Sequence[Written]) -> list[Stored | Exception]:
        try:
            new = await insert_now(self._db, namespace, written, self._analyzer, self._embedder)
        except ApiError:
            raise
        except Exception as error:
            if len(written) == 1:
                return [error]
            # PostgreSQL refuses something one of them holds: each by itself, so that only that one fails.
            return [(await self._write(namespace, [one]))[0] for one in written]
        if new and not self._embedder.instant:
            self._deferred(namespace)
        return [
            (memory.id, False) if memory.id in new else await self._known(namespace, memory) for memory, _ in written
        ]

    async def _known(self, namespace: str, memory: NewMemory) -> Stored | Exception:
        connection: Any
        try:
            async with self._db.tenant(namespace) as connection:
                return (await known_ids(connection, namespace, [memory]))[memory.id], True
        except ApiError as error:
            return error
