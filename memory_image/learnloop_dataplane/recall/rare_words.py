"""Which memories of a large agent have a word: a look-up instead of a scan of all its texts.

An index that follows from the rows of `memory_vec`, kept for the agents that a vector store proposes for. What changed
since it was brought up to date is told by `late`.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from learnloop_dataplane.postgres.agents_in_table import known_agents
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.column_queries import END, SINCE

PAGE = 2000
RARE = 1_000  # a word in more memories than this chooses nobody
_FIRST = UUID(int=0)
# A term is a little-endian uint32: 8 bits of how often, 24 of the word's hash. `|` and `<<` bind alike in PostgreSQL.
_TAKE_IN = """
WITH page AS MATERIALIZED (
    SELECT memory_id, terms FROM memory_vec v
    WHERE namespace = $1 AND agent_id = $2 AND memory_id > $3 AND memory_id <= $4 AND {chosen}
    ORDER BY memory_id LIMIT {page}
), taken AS (
    INSERT INTO memory_words (namespace, agent_id, memory_id, word)
    SELECT $1, $2, p.memory_id, w.word FROM page p, LATERAL (
        SELECT get_byte(p.terms, 4 * i + 1) | (get_byte(p.terms, 4 * i + 2) << 8) | (get_byte(p.terms, 4 * i + 3) << 16)
        FROM generate_series(0, length(p.terms) / 4 - 1) AS i) AS w(word)
    ON CONFLICT DO NOTHING
)
SELECT memory_id FROM page ORDER BY memory_id DESC LIMIT 1
"""
_MISSING = """NOT EXISTS (SELECT 1 FROM memory_words w
    WHERE w.namespace = v.namespace AND w.agent_id = v.agent_id AND w.memory_id = v.memory_id)"""
_ALL = _TAKE_IN.format(chosen=_MISSING, page=PAGE)
_CHANGED = _TAKE_IN.format(chosen=SINCE.format(table="v", base="$5::text::pg_snapshot"), page=PAGE)
_LATE = f"""
SELECT memory_id FROM memory_vec v
WHERE namespace = $1 AND agent_id = $2 AND {SINCE.format(table="v", base="$3::text::pg_snapshot")} LIMIT $4
"""
_FREQUENCY = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM memory_words
    WHERE namespace = $1 AND agent_id = $2 AND word = q.word LIMIT $4) few) AS n
FROM unnest($3::int[]) WITH ORDINALITY AS q(word, place) ORDER BY q.place
"""
_HAVING = """
SELECT memory_id FROM memory_words WHERE namespace = $1 AND agent_id = $2 AND word = ANY($3::int[])
ORDER BY array_position($3::int[], word) LIMIT $4
"""
_AGENTS = f"""
WITH RECURSIVE {known_agents("memory_words")}
SELECT agent_id FROM known WHERE agent_id IS NOT NULL ORDER BY agent_id
"""
_FORGET = "DELETE FROM memory_words WHERE namespace = $1 AND agent_id = $2"


class RareWords:
    """Of the large agents of all namespaces."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._snapshots: dict[tuple[str, str], str] = {}

    async def follow(self, namespace: str, agent: str) -> None:
        """Takes in everything that was committed before the call, page by page; repeating it is harmless.

        Raises:
            Unavailable: PostgreSQL does not answer; the rest is taken in the next time.
        """
        known = self._snapshots.get((namespace, agent))
        statement, more = (_ALL, ()) if known is None else (_CHANGED, (known,))
        async with self._db.tenant(namespace) as connection:
            snapshot = await connection.fetchval("SELECT pg_current_snapshot()::text")
            end: UUID | None = await connection.fetchval(END, namespace, agent)
        last = _FIRST if end is not None else None
        while last is not None:
            async with self._db.tenant(namespace) as connection:
                last = await connection.fetchval(statement, namespace, agent, last, end, *more)
        self._snapshots[namespace, agent] = snapshot

    async def late(self, connection: Any, namespace: str, agent: str, most: int) -> list[UUID] | None:
        """The memories that changed since `follow` took them in; None where they are more than `most`, or it never did.

        Args:
            connection: of the transaction that asks `having`, before it does.
        """
        known = self._snapshots.get((namespace, agent))
        if known is None:
            return None
        rows = await connection.fetch(_LATE, namespace, agent, known, most + 1)
        return [row["memory_id"] for row in rows] if len(rows) <= most else None

    async def known(self, namespace: str) -> list[str]:
        """Agents with words in the index, in order."""
        async with self._db.tenant(namespace) as connection:
            return [row["agent_id"] for row in await connection.fetch(_AGENTS, namespace)]

    async def forget(self, namespace: str, agent: str) -> None:
        """Nothing of this agent is in the index."""
        self._snapshots.pop((namespace, agent), None)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_FORGET, namespace, agent)


async def frequencies(connection: Any, namespace: str, agent: str, words: Sequence[int]) -> list[int]:
    """In how many memories each of these words (24 bits of its hash) occurs, at most RARE."""
    return [row["n"] for row in await connection.fetch(_FREQUENCY, namespace, agent, words, RARE)]


async def having(connection: Any, namespace: str, agent: str, words: Sequence[int], most: int) -> list[UUID]:
    """At most `most` memories with any of these words, those with the first of them first."""
    return [row["memory_id"] for row in await connection.fetch(_HAVING, namespace, agent, words, most)]
