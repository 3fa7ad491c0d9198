"""Writes the recall log and the access counts, in batches after the recalls were answered."""

import asyncio
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database

log = logging.getLogger(__name__)
FLUSH_SECONDS = 1.0
MAX_WAITING = 20_000  # recalls of a namespace while the database is away for long
TOGETHER = 64  # recalls written at a time: recalls that are answered meanwhile wait a millisecond, not ten
# What was committed when the connection broke is written again, and counted again.
_INSERT = """
INSERT INTO recall_log (namespace, retrieval_id, agent_id, created_at, memory_ids)
SELECT $1, u.id, u.agent, u.at, u.ids::uuid[]
FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::text[]) AS u(id, agent, at, ids) ON CONFLICT DO NOTHING
"""
# In the order of the ids, so that two replicas wait for one another and never in a circle.
_COUNT = """
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed)
SELECT $1, u.id, u.n, now() FROM unnest($2::uuid[], $3::bigint[]) AS u(id, n) ORDER BY u.id
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
    """Collects recalls and writes them once a second.

    A process that is killed loses a second of log and counts, never a memory and never an answer.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, list[Recalled]] = defaultdict(list)
        self._writing = asyncio.Lock()

    def add(self, namespace: str, recalled: Recalled) -> None:
        """One more recall was answered; beyond the limit it is not logged."""
        if len(self._waiting[namespace]) < MAX_WAITING:
            self._waiting[namespace].append(recalled)

    async def write(self) -> None:
        """Writes the recalls that have collected.

        Raises:
            Exception: whatever PostgreSQL answered about one namespace; its recalls wait for the next time.
        """
        failed: Exception | None = None
        async with self._writing:
            for namespace in list(self._waiting):
                recalls = self._waiting[namespace]
                try:
                    while part := recalls[:TOGETHER]:
                        await self._store(namespace, part)
                        del recalls[: len(part)]
                except Exception as error:  # another namespace's may well be written
                    failed = error
        if failed:
            raise failed

    async def flush(self) -> None:
        """Writes what has collected; what the database does not take now waits for the next time."""
        try:
            await self.write()
        except Unavailable as error:
            log.info("recalls wait to be logged: %s", error)

    async def _store(self, namespace: str, recalls: list[Recalled]) -> None:
        records = [
            (each.retrieval_id, each.agent, each.at, "{" + ",".join(map(str, each.ids)) + "}") for each in recalls
        ]
        uses = Counter(identity for each in recalls for identity in each.ids)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_INSERT, namespace, *(list(column) for column in zip(*records, strict=True)))
            await connection.execute(_COUNT, namespace, list(uses), list(uses.values()))
