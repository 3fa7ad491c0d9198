"""Keeps agents' memories in this process and never answers from what is stale.

Every row of `memory_vec` names the transaction that wrote it last (`changed`). With each recall PostgreSQL is asked,
in the statement that fetches the answer's texts, whether anything of the agent was committed after the snapshot at
which it was read. What was acknowledged before a recall was asked, by whichever replica, is therefore in its answer.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from learnloop_dataplane.concurrency.batching import Together
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.agent_cache import AGENT_BYTES, Cache, Kept
from learnloop_dataplane.ranking.candidates import SCOPE
from learnloop_dataplane.ranking.column_queries import SINCE, Reading

MOST_TOGETHER = 32
OLDEST_SECONDS = 6 * 3600.0  # a day before retention forgets which agents had memories deleted
LIGHT_BYTES = 256  # of a memory without its vector
FULL_SHARE = 16  # with less than a sixteenth left

_TEXT = "m.id, m.memory_type, m.content, m.importance, m.created_at, m.session_id, m.origin, m.pinned, m.agent_id"
# A row for each text, and one for who has none: in one array of rows for each question they would cost PostgreSQL and
# asyncpg, which looks at the type of every field of such a row, a fifth and a third more.
_CHECK = f"""
SELECT m.*, q.place, c.now, c.changed
{SCOPE}, LATERAL (SELECT * FROM unnest($2::text[], $3::text[]::pg_snapshot[], $4::text[], $5::text[])
    WITH ORDINALITY AS u(agent, base, ranker, ids, place) WHERE s.namespace IS NOT NULL) q,
LATERAL (SELECT extract(epoch FROM now())::float8 AS now,
    EXISTS(SELECT 1 FROM memory_vec v WHERE v.namespace = s.namespace AND v.agent_id = q.agent
        AND {SINCE.format(table="v", base="q.base")})
    OR EXISTS(SELECT 1 FROM memory_gone g WHERE g.namespace = s.namespace AND g.agent_id = q.agent
        AND {SINCE.format(table="g", base="q.base")})
    OR (SELECT true FROM memory_pending p WHERE p.namespace = s.namespace AND p.agent_id = q.agent LIMIT 1) IS NOT NULL
    OR (SELECT r.state FROM memory_rankers r WHERE r.namespace = s.namespace AND r.agent_id = q.agent)
        IS DISTINCT FROM q.ranker::jsonb
        AS changed OFFSET 0) c
LEFT JOIN LATERAL (SELECT {_TEXT} FROM agent_memories m
    WHERE m.namespace = s.namespace AND m.id = ANY(q.ids::uuid[]) OFFSET 0) m ON true
"""
_TEXTS = f"""
SELECT m.* {SCOPE}, LATERAL (SELECT {_TEXT} FROM agent_memories m
    WHERE m.namespace = s.namespace AND m.agent_id = ANY($2::text[]) AND m.id = ANY($3::uuid[]) OFFSET 0) m
"""
Asked = tuple[str, str, str | None, list[UUID]]  # agent, snapshot and ranker as kept, whose texts are wanted


@dataclass(frozen=True)
class Checked:
    """Whether an agent's memories or its ranker are no longer what they were, by the database's clock.

    Attributes:
        rows: of the memories asked for: id, type, content, importance, created, session, origin, pinned, agent,
            and more.
    """

    now: float
    changed: bool
    rows: list[Any]


class Reader:
    """Reads agents' memories, keeps them, and finds out what changed.

    Args:
        most_bytes: how much memory what is kept may take, about.
    """

    def __init__(self, db: Database, embedder: Embedder, most_bytes: int) -> None:
        self._db = db
        self._reading = Reading(db, embedder)
        self._cache = Cache(most_bytes)
        self._bytes_each = LIGHT_BYTES + 2 * embedder.dimensions
        self._most = most_bytes // self._bytes_each
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._checks: Together[Asked, Checked] = Together(self._check, most=MOST_TOGETHER, at_once=2)

    @property
    def exact_up_to(self) -> int:
        """Memories of an agent that surely fits, with room for what it stores: ranked here it is answered exactly, and
        faster than through any index."""
        return self._most * 7 // 8

    def peek(self, namespace: str, agent: str) -> Kept | None:
        """What is kept of this agent, which may be stale; None where there is nothing, or it is known to be."""
        kept = self._cache.get((namespace, agent))
        if kept is None or kept.pending or time.monotonic() - kept.loaded > OLDEST_SECONDS:
            return None
        return kept

    async def check(self, namespace: str, agent: str, kept: Kept, ids: list[UUID]) -> Checked:
        """Whether anything of the agent changed since it was read, and the texts of these memories.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        return await self._checks.do(namespace, (agent, kept.snapshot, kept.ranker_state, ids))

    async def texts(self, namespace: str, agents: Sequence[str], ids: list[UUID]) -> Sequence[Any]:
        """The rows of `Checked` alone, of memories that these agents have."""
        return await self._db.fetch_as(namespace, _TEXTS, list(agents), ids)

    async def fresh(self, namespace: str, agent: str, since: float) -> Kept | None:
        """The agent's memories with everything that was committed before this instant (monotonic seconds); None when
        they are too many to keep.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        key = (namespace, agent)
        lock = self._locks.setdefault(key, asyncio.Lock())  # gone with the last who holds it or waits for it
        async with lock:
            kept = self._cache.get(key)
            if kept is None or kept.asked < since:
                kept = await self._refresh(key, kept)
        return kept

    @property
    def full(self) -> bool:
        """Would nearly every agent that is read now put another one out?"""
        return self._cache.room * FULL_SHARE < self._cache.most_bytes

    async def warm(self, namespace: str, agent: str) -> bool:
        """Reads an agent that nobody has asked for yet, unless others would have to go for it; did it?

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        key = (namespace, agent)
        async with self._locks.setdefault(key, asyncio.Lock()):
            most = (self._cache.room - AGENT_BYTES) // self._bytes_each
            if most < 0 or self._cache.get(key) is not None or await self._reading.count(*key, most + 1) > most:
                return False
            return await self._read(key) is not None

    async def _refresh(self, key: tuple[str, str], kept: Kept | None) -> Kept | None:
        young = kept is not None and time.monotonic() - kept.loaded < OLDEST_SECONDS
        if kept is not None and young and await self._reading.update(*key, kept):
            self._cache.put(key, kept)
            return kept
        return await self._read(key)

    async def _read(self, key: tuple[str, str]) -> Kept | None:
        self._cache.drop(key)
        count = await self._reading.count(*key, self._most + 1)
        if count > self._most:
            return None
        new = await self._reading.all(*key, count)
        self._cache.put(key, new)
        return new

    async def _check(self, namespace: str, asked: Sequence[Asked]) -> list[Checked]:
        agents, bases, rankers, ids = map(list, zip(*asked, strict=True))
        wanted = ["{" + ",".join(map(str, each)) + "}" for each in ids]  # arrays of arrays have one length
        found: dict[int, Checked] = {}
        for row in await self._db.fetch_as(namespace, _CHECK, agents, bases, rankers, wanted):
            place = row["place"]
            if place not in found:
                found[place] = Checked(row["now"], row["changed"], [])
            if row["id"] is not None:
                found[place].rows.append(row)
        return [found[place] for place in range(1, len(asked) + 1)]
