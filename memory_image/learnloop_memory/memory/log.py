"""What recalls leave behind, written in batches after they were answered: the recall log and the access counts."""

import asyncio
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from learnloop_memory.errors import Unavailable
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
FLUSH_SECONDS = 0.25
MAX_WAITING = 20_000  # recalls; the newest are kept when the database is away for long
_INSERT = """
INSERT INTO recall_log
    (namespace, retrieval_id, agent_id, created_at, ranker, shown, memory_ids, features, propensities)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
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
    """One recall as it is logged.

    Attributes:
        ids: the memories in the order of their rank; the first `shown` were answered, the rest came close.
        features: float32 [len(ids), 6], their z-scores, as bytes.
        propensities: with which probability each of them was put where it was.
    """

    retrieval_id: UUID
    agent: str
    ranker: str
    shown: int
    ids: list[UUID]
    features: bytes
    propensities: list[float]
    at: datetime


class RecallLog:
    """Collects recalls and writes them 4 times a second.

    A process that is killed loses a quarter of a second of log, never a memory and never an answer.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, list[Recalled]] = defaultdict(list)
        self._size = 0
        self._writing = asyncio.Lock()

    def add(self, namespace: str, recalled: Recalled) -> None:
        """One more recall was answered."""
        waiting = self._waiting[namespace]
        waiting.append(recalled)
        self._size += 1
        if self._size > MAX_WAITING:
            del waiting[0]
            self._size -= 1

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Writes what has collected; what the database does not take now waits for the next time."""
        # Whoever waits for the lock finds everything written that was added before it asked.
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, defaultdict(list), 0
        for namespace, recalls in waiting.items():
            try:
                await self._write(namespace, recalls)
            except Unavailable as error:
                log.info("%d recalls of %s wait to be logged: %s", len(recalls), namespace, error)
                for recalled in recalls:
                    self.add(namespace, recalled)

    async def _write(self, namespace: str, recalls: list[Recalled]) -> None:
        counts = Counter(identity for recalled in recalls for identity in recalled.ids[: recalled.shown])
        records = [
            (namespace, r.retrieval_id, r.agent, r.at, r.ranker, r.shown, r.ids, r.features, r.propensities)
            for r in recalls
        ]
        async with self._db.tenant(namespace) as connection:
            await connection.executemany(_INSERT, records)
            if counts:
                await connection.execute(_COUNT, namespace, list(counts), list(counts.values()), datetime.now(UTC))
