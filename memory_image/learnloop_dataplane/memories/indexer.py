"""Write first, index later: turns stored texts into the narrow rows that recall scans."""

import logging
from typing import Any

from pgvector import HalfVector

from learnloop_dataplane.concurrency import loop
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.memory_types import CODES
from learnloop_dataplane.ranking.outcome_credit import UTILITY
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.text.tokenizer import pack, thread_of

log = logging.getLogger(__name__)
BATCH = 500
BATCHES = 20  # with other terms, in a row: ten thousand memories a second or two

# One indexer at a time takes a row; the others pass it by. A row leaves the queue in the transaction that indexes it,
# so recall, which reads both, finds every memory exactly once at every instant. FOR SHARE of the memory: whoever
# retires or deletes it waits, and then sees the narrow row. One that is being retired is left for later: a restore may
# take minutes, and recalls of the whole namespace wait for the indexer.
_TAKE = f"""
SELECT p.agent_id, p.memory_id FROM memory_pending p
JOIN agent_memories m ON m.namespace = p.namespace AND m.id = p.memory_id
WHERE p.namespace = $1 ORDER BY p.agent_id, p.memory_id LIMIT {BATCH}
FOR UPDATE OF p SKIP LOCKED FOR SHARE OF m SKIP LOCKED
"""
_READ = """
SELECT id, agent_id, memory_type, text, importance, session_id, created_at, ends_at,
    greatest(created_at, valid_from) AS visible_from,
    least(created_at, (provenance ->> 'remembered_at')::timestamptz) AS remembered_at
FROM agent_memories WHERE namespace = $1 AND id = ANY($2::uuid[]) ORDER BY agent_id, created_at, id
"""
_DONE = """
DELETE FROM memory_pending
WHERE namespace = $1 AND (agent_id, memory_id) = ANY(SELECT * FROM unnest($2::text[], $3::uuid[]))
"""
# A copy (of a fork, of an import) is as recent as what it was made from, and knows what that was worth.
_INDEX = f"""
INSERT INTO memory_vec (namespace, agent_id, memory_id, memory_type, embedder, importance, thread, created_at,
    visible_from, visible_to, terms, embedding, analyzer, utility)
SELECT $1, t.*, coalesce({UTILITY}, 0) FROM unnest($2::text[], $3::uuid[], $4::smallint[], $5::text[], $6::real[],
    $7::bigint[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::bytea[], $12::halfvec[],
    $13::text[])
    AS t(agent, id, kind, embedder, importance, thread, since, begins, ends, terms, embedding, analyzer)
LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = t.id
"""
# Rows whose terms another analyzer made (or none that is known, before migration 0020): the same texts again. What a
# large agent's index of words has of them is taken in anew, too.
_OTHER_TERMS = """
SELECT v.agent_id, v.memory_id, m.text FROM memory_vec v
JOIN agent_memories m ON m.namespace = v.namespace AND m.id = v.memory_id
WHERE v.namespace = $1 AND v.analyzer IS DISTINCT FROM $2 ORDER BY v.agent_id, v.memory_id LIMIT $3
FOR UPDATE OF v SKIP LOCKED
"""
_RETERM = """
UPDATE memory_vec v SET analyzer = $2, terms = t.terms
FROM unnest($3::text[], $4::uuid[], $5::bytea[]) AS t(agent, id, terms)
WHERE v.namespace = $1 AND v.agent_id = t.agent AND v.memory_id = t.id
"""
_RETERM_AND_EMBED = """
UPDATE memory_vec v SET analyzer = $2, terms = t.terms, embedder = $6, embedding = t.embedding
FROM unnest($3::text[], $4::uuid[], $5::bytea[], $7::halfvec[]) AS t(agent, id, terms, embedding)
WHERE v.namespace = $1 AND v.agent_id = t.agent AND v.memory_id = t.id
"""
_WORDS_AGAIN = """
DELETE FROM memory_words
WHERE namespace = $1 AND (agent_id, memory_id) IN (SELECT * FROM unnest($2::text[], $3::uuid[]))
"""
# Rows of another embedder, or stored while theirs was away: the same texts again, with this one.
_STALE = """
SELECT v.agent_id, v.memory_id, m.text FROM memory_vec v
JOIN agent_memories m ON m.namespace = v.namespace AND m.id = v.memory_id
WHERE v.namespace = $1 AND v.embedder IS DISTINCT FROM $2 ORDER BY v.agent_id, v.memory_id LIMIT $3
FOR UPDATE OF v SKIP LOCKED
"""
_REPLACE = """
UPDATE memory_vec SET embedder = $4, embedding = $5 WHERE namespace = $1 AND agent_id = $2 AND memory_id = $3
"""


class Indexer:
    """Indexes what is pending, and embeds again what another embedder made."""

    def __init__(self, db: Database, analyzer: Analyzer, embedder: Embedder) -> None:
        self._db = db
        self._analyzer = analyzer
        self._embedder = embedder
        self._current: set[str] = set()
        self._current_terms: set[str] = set()

    async def run(self, namespace: str) -> int:
        """Handles everything pending in one namespace and returns how many memories that were.

        While the embedder does not answer, rows are indexed without a vector: words find them until it is back.

        Raises:
            Unavailable: PostgreSQL does not answer; the rest stays pending.
        """
        done = 0
        while count := await self._batch(namespace):
            done += count
        return done

    async def turn(self, namespace: str) -> int:
        """As much of that as a turn has.

        Raises:
            Unavailable: PostgreSQL does not answer; the rest stays pending.
        """
        done = 0
        while done < loop.TURN and (count := await self._batch(namespace)):
            done += count
        return done

    async def _batch(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            taken = await connection.fetch(_TAKE, namespace)
            if not taken:
                return 0
            ids = [row["memory_id"] for row in taken]
            rows = await connection.fetch(_READ, namespace, ids)
            try:
                vectors: list[Any] = await self._embedder.embed([row["text"] for row in rows])
            except Unavailable as error:
                log.warning("memories are indexed by their words only for now: %s", error)
                self._current.discard(namespace)
                vectors = [None] * len(rows)
            records = [self._record(row, vector) for row, vector in zip(rows, vectors, strict=True)]
            await connection.execute(_INDEX, namespace, *(list(column) for column in zip(*records, strict=True)))
            await connection.execute(_DONE, namespace, [row["agent_id"] for row in taken], ids)
        return len(taken)

    def _record(self, row: Any, vector: Any) -> tuple[Any, ...]:
        return (
            row["agent_id"],
            row["id"],
            CODES[row["memory_type"]],
            None if vector is None else self._embedder.name,
            row["importance"],
            thread_of(row["session_id"]),
            row["remembered_at"],
            row["visible_from"],
            row["ends_at"],
            pack(self._analyzer.terms(row["text"])),
            None if vector is None else HalfVector(vector),
            self._analyzer.name,
        )

    async def reterm(self, namespace: str) -> int:
        """Cuts up to twenty batches of rows that another analyzer cut anew; returns how many there were.

        An instant embedder's vectors, which are made of the terms, come along.

        Raises:
            Unavailable: PostgreSQL does not answer; the rest waits.
        """
        done = 0
        while namespace not in self._current_terms and done < BATCHES * BATCH:
            done += await self._reterm(namespace)
        return done

    async def _reterm(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_OTHER_TERMS, namespace, self._analyzer.name, BATCH)
            agents, ids = [row["agent_id"] for row in rows], [row["memory_id"] for row in rows]
            terms = [pack(self._analyzer.terms(row["text"])) for row in rows]
            changes = (namespace, self._analyzer.name, agents, ids, terms)
            if rows and self._embedder.instant:
                vectors = [HalfVector(vector) for vector in await self._embedder.embed([row["text"] for row in rows])]
                await connection.execute(_RETERM_AND_EMBED, *changes, self._embedder.name, vectors)
            elif rows:
                await connection.execute(_RETERM, *changes)
            if rows:
                await connection.execute(_WORDS_AGAIN, namespace, agents, ids)
        if not rows:
            self._current_terms.add(namespace)
        return len(rows)

    async def reembed(self, namespace: str) -> int:
        """Gives one batch of rows without a vector of this embedder a new one; returns how many there were.

        Raises:
            Unavailable: PostgreSQL or the embedder does not answer; the rest waits.
        """
        if namespace in self._current:
            return 0
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_STALE, namespace, self._embedder.name, BATCH)
            vectors = await self._embedder.embed([row["text"] for row in rows])
            changes = [
                (namespace, row["agent_id"], row["memory_id"], self._embedder.name, HalfVector(vector))
                for row, vector in zip(rows, vectors, strict=True)
            ]
            await connection.executemany(_REPLACE, changes)
        if not rows:
            self._current.add(namespace)
        return len(rows)
