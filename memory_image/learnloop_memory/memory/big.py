"""Agents with more memories than an exact scan should read: each gets an HNSW index of its own.

Never one index for all agents: filtered afterwards by `WHERE agent_id`, a global HNSW has a recall@10 of 0.04. Above
100,000 memories the candidates are the nearest by that index, the memories with the query's rare words, and the newest;
they are ranked as always, with z-scores over the whole memory as far as it is known.
"""

import hashlib
import logging
from typing import Any

import asyncpg
import numpy as np
from pgvector import HalfVector

from learnloop_memory.memory.candidates import CHOSEN, Query
from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.memory.signals import Population
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
# Under row-level security the word look-ups of `find` read every text of the agent (`@@` is not leakproof): 2.8 s with
# 50,000 memories, where the exact scan needs a fraction of it. Hence the high bar.
FROM = 100_000
NEAREST, BY_WORDS, NEWEST = 200, 400, 300
EF_SEARCH = 600
RARE = 1_000  # a word in more memories than this chooses nobody
BUILD_SECONDS = 1800.0
_LARGE = "SELECT agent_id, count(*) AS n FROM memory_vec WHERE namespace = $1 GROUP BY agent_id HAVING count(*) > $2"
_INDEXES = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'memory_vec'::regclass AND i.indisvalid AND c.relname LIKE 'hnsw\\_%'
"""
# The predicate is proven only against constants: both settings hold for this transaction.
_SETTINGS = f"SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL hnsw.ef_search = {EF_SEARCH}"
_NEAREST = """
SELECT memory_id FROM memory_vec WHERE namespace = $1 AND agent_id = $2 AND embedder = $3
    AND memory_type = ANY($5::smallint[]) AND visible_from <= now() AND visible_to > now()
ORDER BY (embedding::halfvec({dimensions})) <#> $4::halfvec({dimensions}) LIMIT {limit}
"""
_NEWEST = """
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3
"""
_FREQUENCY = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM agent_memories WHERE namespace = $1 AND agent_id = $2
    AND to_tsvector('simple', text) @@ q.word::tsquery LIMIT $4) few) AS n
FROM unnest($3::text[]) WITH ORDINALITY AS q(word, place) ORDER BY q.place
"""
_BY_WORDS = """
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND to_tsvector('simple', text) @@ $3::tsquery
LIMIT $4
"""


class BigAgents:
    """Knows which agents have an index of their own, builds what is missing, and searches with it.

    Args:
        dsn: of the login that owns the tables; the service's own role may not create indexes.
    """

    def __init__(self, db: Database, embedder: Embedder, dsn: str, *, above: int = FROM) -> None:
        self._db = db
        self._embedder = embedder
        self._dsn = dsn
        self._above = above
        self._sizes: dict[tuple[str, str], int] = {}

    def indexed(self, namespace: str, agent: str) -> bool:
        """Is there an index for this agent, by this embedder?"""
        return (namespace, agent) in self._sizes

    async def run(self, namespace: str) -> int:
        """Builds the indexes that are missing in one namespace and returns how many agents have one.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._db.tenant(namespace) as connection:
            large = {row["agent_id"]: row["n"] for row in await connection.fetch(_LARGE, namespace, self._above)}
            built = {row["relname"] for row in await connection.fetch(_INDEXES)} if large else set()
        for agent in large:
            if index_name(namespace, agent, self._embedder.name) not in built:
                await self._build(namespace, agent)
        self._sizes = {key: n for key, n in self._sizes.items() if key[0] != namespace}
        self._sizes |= {(namespace, agent): n for agent, n in large.items()}
        return len(large)

    async def _build(self, namespace: str, agent: str) -> None:
        """Without blocking writers; an attempt that was cut off leaves an invalid index, which goes first."""
        name = index_name(namespace, agent, self._embedder.name)
        scope = f"namespace = {_literal(namespace)} AND agent_id = {_literal(agent)}"
        dimensions = self._embedder.dimensions
        connection = await asyncpg.connect(self._dsn, timeout=5, command_timeout=BUILD_SECONDS)
        try:
            await connection.execute("SET maintenance_work_mem = '256MB'")  # of 50,000 memories the whole graph fits
            for index, on in (
                (
                    name,
                    f"memory_vec USING hnsw ((embedding::halfvec({dimensions})) halfvec_ip_ops)"
                    f" WITH (m = 16, ef_construction = 96)"
                    f" WHERE {scope} AND embedder = {_literal(self._embedder.name)}",
                ),
                (f"words_{name}", f"agent_memories USING gin (to_tsvector('simple', text)) WHERE {scope}"),
            ):
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
                await connection.execute(f"CREATE INDEX CONCURRENTLY {index} ON {on}")
        finally:
            await connection.close()
        log.info("agent %s of %s has more than %d memories and now an index of its own", agent, namespace, self._above)

    async def find(self, namespace: str, agent: str, query: Query) -> tuple[Any, Population]:
        """The memories worth ranking, packed, and what they were chosen from.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        # Words are letters and digits only, so quoting them makes each one a plain lexeme of a tsquery.
        quoted = [f"'{word}'" for word in list(dict.fromkeys(query.tokens))[:64]]
        arguments = query.arguments(namespace, agent)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_SETTINGS)
            rows = await connection.fetch(_NEWEST, namespace, agent, NEWEST)
            if query.vector is not None:
                rows += await connection.fetch(
                    _NEAREST.format(dimensions=self._embedder.dimensions, limit=NEAREST),
                    namespace,
                    agent,
                    query.embedder,
                    HalfVector(query.vector),
                    arguments[2],
                )
            counts = [row["n"] for row in await connection.fetch(_FREQUENCY, namespace, agent, quoted, RARE)]
            rare = [word for word, count in zip(quoted, counts, strict=True) if 0 < count < RARE]
            if rare:
                rows += await connection.fetch(_BY_WORDS, namespace, agent, " | ".join(rare), BY_WORDS)
            chosen = list({row[0] for row in rows})
            row = await connection.fetchrow(CHOSEN, *arguments, chosen)
        size = self._sizes.get((namespace, agent), len(chosen))
        return row, Population(size, np.array(counts, dtype=np.float64))


def index_name(namespace: str, agent: str, embedder: str) -> str:
    """One name for one agent and embedder, whatever their names hold."""
    return "hnsw_" + hashlib.blake2b(f"{namespace}/{agent}/{embedder}".encode(), digest_size=12).hexdigest()


def _literal(value: str) -> str:
    """An SQL string. All three values have validated alphabets; the quotes are doubled all the same."""
    return "'" + value.replace("'", "''") + "'"
