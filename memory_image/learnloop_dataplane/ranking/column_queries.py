"""Reads one agent's memories from PostgreSQL as columns: all of them, or what changed since a snapshot."""

import asyncio
import time
from functools import partial
from typing import Any
from uuid import UUID

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.agent_cache import Kept
from learnloop_dataplane.ranking.candidates import LIGHT, PENDING, RANKER, SCOPE

LARGE = 4096  # memories above which they are read in parts, and unpacked in a thread
PART = 8192  # memories: 7 MB of an answer at a time, not 45

# A transaction that was not over at the snapshot: the bound is for the index, the function for the exact answer.
SINCE = "{table}.changed >= pg_snapshot_xmin({base}) AND NOT pg_visible_in_snapshot({table}.changed, {base})"
# The last of an agent's memories now: whoever reads page by page ends there, however fast others store meanwhile.
END = """
SELECT memory_id FROM memory_vec WHERE namespace = $1 AND agent_id = $2 ORDER BY memory_id DESC LIMIT 1
"""
_KEPT = """
string_agg(int2send(v.memory_type), '') AS kinds,
string_agg(float8send(extract(epoch FROM v.visible_from)::float8), '') AS begins,
string_agg(float8send(extract(epoch FROM v.visible_to)::float8), '') AS ends,
string_agg(CASE WHEN v.embedder = $3 THEN '\\x01'::bytea ELSE '\\x00' END, '') AS known,
string_agg(CASE WHEN v.embedder = $3 THEN halfvec_send(v.embedding) END, '') AS vectors
"""
_AS_OF = "SELECT x.*, pg_current_snapshot()::text AS snapshot, extract(epoch FROM now())::float8 AS now"
_REST = f"{RANKER}, {PENDING.format(at='NULL::timestamptz', here='')}"
_ALL = f"""{_AS_OF}, {_REST} {SCOPE}, LATERAL (SELECT {LIGHT}, {_KEPT} FROM memory_vec v
WHERE v.namespace = s.namespace AND v.agent_id = $2 AND v.visible_to > now()) x"""
_SOME = f"""{_AS_OF}, NULL AS ranker, NULL AS pending {SCOPE}, LATERAL (SELECT {LIGHT}, {_KEPT} FROM (
    SELECT * FROM memory_vec m WHERE m.namespace = s.namespace AND m.agent_id = $2 AND m.visible_to > now()
        AND m.memory_id > $4 ORDER BY m.memory_id LIMIT $5) v) x"""
_CHANGES = f"""{_AS_OF}, {_REST}, EXISTS(SELECT 1 FROM memory_gone g WHERE g.namespace = s.namespace AND g.agent_id = $2
    AND {SINCE.format(table="g", base="$4::text::pg_snapshot")}) AS gone
{SCOPE}, LATERAL (SELECT {LIGHT}, {_KEPT} FROM memory_vec v
WHERE v.namespace = s.namespace AND v.agent_id = $2 AND {SINCE.format(table="v", base="$4::text::pg_snapshot")}) x"""
_COUNT = f"""SELECT x.n {SCOPE}, LATERAL (SELECT count(*) AS n FROM (SELECT 1 FROM memory_vec v
WHERE v.namespace = s.namespace AND v.agent_id = $2 LIMIT $3) few) x"""


class Reading:
    """Every method raises Unavailable where PostgreSQL does not answer."""

    def __init__(self, db: Database, embedder: Embedder) -> None:
        self._db = db
        self._embedder = embedder

    async def count(self, namespace: str, agent: str, most: int) -> int:
        """How many memories are indexed, those that ended included; nobody counts further than `most`."""
        [row] = await self._db.fetch_as(namespace, _COUNT, agent, most)
        return int(row["n"])

    async def update(self, namespace: str, agent: str, kept: Kept) -> bool:
        """Brings what is kept up to now; False when everything has to be read again."""
        asked = time.monotonic()
        [row] = await self._db.fetch_as(namespace, _CHANGES, agent, self._embedder.name, kept.snapshot)
        return kept.update(row, asked)

    async def all(self, namespace: str, agent: str, count: int) -> Kept:
        """Every memory that has not ended.

        Args:
            count: about how many there are.
        """
        if count > LARGE:
            kept = await self._in_parts(namespace, agent, count)
            if await self.update(namespace, agent, kept):
                return kept
        asked = time.monotonic()
        [row] = await self._db.fetch_as(namespace, _ALL, agent, self._embedder.name)
        make = partial(Kept, row, asked, self._embedder.dimensions)
        return await asyncio.to_thread(make) if count > LARGE else make()

    async def _in_parts(self, namespace: str, agent: str, count: int) -> Kept:
        """As of the first part's snapshot, with some of what changed since: `update` makes it whole.

        While a part is unpacked the next is on its way, and neither process ever holds all of it as one answer.
        """
        kept: Kept | None = None
        unpacking: asyncio.Future[Kept] | None = None
        last, n = UUID(int=0), PART
        while n == PART:
            asked = time.monotonic()
            [row] = await self._db.fetch_as(namespace, _SOME, agent, self._embedder.name, last, PART)
            if unpacking is not None:
                kept = await unpacking
            unpacking = asyncio.ensure_future(asyncio.to_thread(self._unpack, kept, row, asked, count))
            n = row["n"]
            last = UUID(bytes=row["ids"][-16:]) if n else last
        assert unpacking is not None
        kept = await unpacking
        await asyncio.to_thread(kept.prepare)
        return kept

    def _unpack(self, kept: Kept | None, row: Any, asked: float, count: int) -> Kept:
        if kept is None:
            return Kept(row, asked, self._embedder.dimensions, room=count)
        kept.add(row)
        return kept
