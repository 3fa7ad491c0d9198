"""What recalls leave behind, written in batches after they were answered: the recall log and the access counts."""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from learnloop_memory.errors import Unavailable
from learnloop_memory.store.arrays import plain
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
FLUSH_SECONDS = 0.25
MAX_WAITING = 20_000  # recalls; the newest are kept when the database is away for long
TOGETHER = 64  # recalls written at a time: recalls that are answered meanwhile wait a millisecond, not ten
COUNT_SECONDS = 2.0  # popular memories are counted once in this time, not with every recall
_INSERT = """
INSERT INTO recall_log
    (namespace, retrieval_id, agent_id, created_at, ranker, shown, memory_ids, features, propensities)
SELECT s.namespace, u.id, u.agent, u.at, u.ranker, u.shown, u.ids::uuid[], u.features, u.chances::real[]
FROM set_config('app.namespace', $1, true) AS s(namespace), LATERAL (SELECT * FROM unnest($2::uuid[], $3::text[],
    $4::timestamptz[], $5::text[], $6::smallint[], $7::text[], $8::bytea[], $9::text[]) OFFSET 0)
    AS u(id, agent, at, ranker, shown, ids, features, chances)
WHERE s.namespace IS NOT NULL
"""
# In the order of the ids, so that two replicas wait for one another and never in a circle.
_COUNT = """
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed)
SELECT $1, u.id, u.n, $4 FROM unnest($2::text::uuid[], $3::text::bigint[]) AS u(id, n) ORDER BY u.id
ON CONFLICT (namespace, memory_id) DO UPDATE
SET access_count = memory_use.access_count + excluded.access_count, last_accessed = excluded.last_accessed
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recall as it is logged.

    Attributes:
        ids: 16 bytes for each memory in the order of their rank; the first `shown` were answered, the rest came close.
        features: float32 [len(ids), 6], their z-scores, as bytes.
        propensities: with which probability each of them was put where it was.
    """

    retrieval_id: UUID
    agent: str
    ranker: str
    shown: int
    ids: bytes
    features: bytes
    propensities: tuple[float, ...]
    at: datetime


class RecallLog:
    """Collects recalls and writes them 4 times a second, and what was used every two.

    A process that is killed loses a quarter of a second of log and two of counts, never a memory and never an answer.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, list[Recalled]] = defaultdict(list)
        self._size = 0
        self._uses: dict[str, Counter[bytes]] = defaultdict(Counter)
        self._counted = time.monotonic()
        self._writing = asyncio.Lock()

    def add(self, namespace: str, recalled: Recalled) -> None:
        """One more recall was answered."""
        used = self._uses[namespace]
        for start in range(0, 16 * recalled.shown, 16):
            used[recalled.ids[start : start + 16]] += 1
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
            async with self._writing:
                await self._flush()
                if time.monotonic() - self._counted >= COUNT_SECONDS:
                    await self._count()

    async def flush(self) -> None:
        """Writes what has collected; what the database does not take now waits for the next time."""
        # Whoever waits for the lock finds everything written that was added before it asked.
        async with self._writing:
            await self._flush()
            await self._count()

    async def _flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, defaultdict(list), 0
        for namespace, recalls in waiting.items():
            for start in range(0, len(recalls), TOGETHER):
                part = recalls[start : start + TOGETHER]
                try:
                    await self._write(namespace, part)
                except Unavailable as error:
                    log.info("%d recalls of %s wait to be logged: %s", len(part), namespace, error)
                    for recalled in part:
                        self.add(namespace, recalled)

    async def _count(self) -> None:
        uses, self._uses, self._counted = self._uses, defaultdict(Counter), time.monotonic()
        for namespace, counts in uses.items():
            try:
                async with self._db.tenant(namespace) as connection:
                    await connection.execute(
                        _COUNT, namespace, _uuids(b"".join(counts)), plain(counts.values()), datetime.now(UTC)
                    )
            except Unavailable as error:
                log.info("the uses of %d memories of %s wait to be counted: %s", len(counts), namespace, error)
                if len(self._uses[namespace]) < MAX_WAITING:
                    self._uses[namespace].update(counts)

    async def _write(self, namespace: str, recalls: list[Recalled]) -> None:
        records = [
            (r.retrieval_id, r.agent, r.at, r.ranker, r.shown, _uuids(r.ids), r.features, _numbers(r.propensities))
            for r in recalls
        ]
        await self._db.fetch_as(namespace, _INSERT, *(list(column) for column in zip(*records, strict=True)))


def _uuids(packed: bytes) -> str:
    """An array of uuid as PostgreSQL reads it, of 16 bytes each."""
    return "{" + packed.hex(",", 16) + "}"


# Nearly all recalls have one of a few: so many shown for certain, so many not.
_numbers = lru_cache(maxsize=256)(plain)
