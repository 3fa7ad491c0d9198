"""Writes the recall log and the access counts, in batches after the recalls were answered."""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database

log = logging.getLogger(__name__)
FLUSH_SECONDS = 0.25
MAX_WAITING = 20_000  # recalls of all namespaces while the database is away for long
TOGETHER = 64  # recalls written at a time: recalls that are answered meanwhile wait a millisecond, not ten
COUNT_SECONDS = 2.0  # popular memories are counted once in this time, not with every recall
# What was committed when the connection broke is written again.
_INSERT = """
INSERT INTO recall_log (namespace, retrieval_id, agent_id, created_at, memory_ids)
SELECT s.namespace, u.id, u.agent, u.at, u.ids::uuid[]
FROM set_config('app.namespace', $1, true) AS s(namespace), LATERAL (SELECT * FROM unnest($2::uuid[], $3::text[],
    $4::timestamptz[], $5::text[]) OFFSET 0) AS u(id, agent, at, ids)
WHERE s.namespace IS NOT NULL
ON CONFLICT DO NOTHING
"""
# In the order of the ids, so that two replicas wait for one another and never in a circle.
_COUNT = """
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed)
SELECT $1, u.id, u.n, $4 FROM unnest($2::uuid[], $3::bigint[]) AS u(id, n) ORDER BY u.id
ON CONFLICT (namespace, memory_id) DO UPDATE
SET access_count = memory_use.access_count + excluded.access_count, last_accessed = excluded.last_accessed
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recall as it is logged, with the memories of the answer in their order."""

    retrieval_id: UUID
    agent: str
    ids: tuple[UUID, ...]
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class RecallLog:
    """Collects recalls and writes them 4 times a second, and what was used every two.

    A process that is killed loses a quarter of a second of log and two of counts, never a memory and never an answer.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, list[Recalled]] = defaultdict(list)
        self._size = 0
        self._uses: dict[str, Counter[UUID]] = defaultdict(Counter)
        self._counted = time.monotonic()
        self._writing = asyncio.Lock()

    def add(self, namespace: str, recalled: Recalled) -> None:
        """One more recall was answered."""
        self._uses[namespace].update(recalled.ids)
        self._waiting[namespace].append(recalled)
        self._size += 1
        self._drop_surplus()

    async def write(self) -> None:
        """Writes the recalls that have collected, and what was used when it is time.

        Raises:
            Exception: whatever PostgreSQL said to some of them; they wait for the next time, as many as there is room.
        """
        async with self._writing:
            await self._flush()
            if time.monotonic() - self._counted >= COUNT_SECONDS:
                await self._count()

    async def flush(self) -> None:
        """Writes what has collected; what the database does not take now waits for the next time.

        Raises:
            Exception: as for `write`, unless the database was only away.
        """
        await asyncio.sleep(0)  # what was answered in this turn of the loop is noted in the next
        # With the lock, everything is written that was added before the call.
        async with self._writing:
            await self._flush()
            await self._count()

    async def _flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, defaultdict(list), 0
        failed: Exception | None = None
        try:
            for namespace, recalls in waiting.items():
                while recalls:
                    part = recalls[:TOGETHER]
                    try:
                        await self._store(namespace, part)
                    except Unavailable as error:
                        log.info("%d recalls of %s wait to be logged: %s", len(recalls), namespace, error)
                        break
                    except Exception as error:  # another namespace's may well be written
                        failed = error
                        break
                    del recalls[:TOGETHER]
        finally:  # also when the task ends in the middle: `close` flushes once more
            self._keep(waiting)
        if failed:
            raise failed

    async def _store(self, namespace: str, recalls: list[Recalled]) -> None:
        try:
            await self._write(namespace, recalls)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
            if len(recalls) == 1:  # no other time is better, and all behind it wait
                log.error("recall %s of %s is not logged: %s", recalls[0].retrieval_id, namespace, error)
                return
            half = len(recalls) // 2
            await self._store(namespace, recalls[:half])
            await self._store(namespace, recalls[half:])

    def _keep(self, unwritten: dict[str, list[Recalled]]) -> None:
        """Puts what was not written back before what came since."""
        for namespace, recalls in unwritten.items():
            self._waiting[namespace] = recalls + self._waiting[namespace]
            self._size += len(recalls)
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        """Beyond the limit the oldest go, of the namespace that has the most: others lose nothing."""
        while self._size > MAX_WAITING:
            longest = max(self._waiting.values(), key=len)
            surplus = min(self._size - MAX_WAITING, len(longest))
            del longest[:surplus]
            self._size -= surplus

    async def _count(self) -> None:
        uses, self._uses, self._counted = self._uses, defaultdict(Counter), time.monotonic()
        failed: Exception | None = None
        try:
            for namespace in list(uses):
                try:
                    await self._add(namespace, uses[namespace])
                except Unavailable as error:
                    log.info("the uses of %d memories of %s wait: %s", len(uses[namespace]), namespace, error)
                except Exception as error:
                    failed = error
                else:
                    del uses[namespace]
        finally:
            for namespace, counts in uses.items():
                if len(self._uses[namespace]) < MAX_WAITING:
                    self._uses[namespace].update(counts)
        if failed:
            raise failed

    async def _add(self, namespace: str, counts: Counter[UUID]) -> None:
        now = datetime.now(UTC)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_COUNT, namespace, list(counts), list(counts.values()), now)

    async def _write(self, namespace: str, recalls: list[Recalled]) -> None:
        records = [(r.retrieval_id, r.agent, r.at, "{" + ",".join(map(str, r.ids)) + "}") for r in recalls]
        await self._db.fetch_as(namespace, _INSERT, *(list(column) for column in zip(*records, strict=True)))
