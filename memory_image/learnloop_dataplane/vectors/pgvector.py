"""pgvector: an HNSW index for each agent, on the rows themselves. What is committed is in it at once.

Never one index for all agents: filtered afterwards by `WHERE agent_id`, a global HNSW has a recall@10 of 0.04.
"""

import hashlib
import logging

import asyncpg

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import TRANSIENT, Database
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.vectors.exact_scan import NEAREST, PLANNED, scanned
from learnloop_dataplane.vectors.vector_store import Near

log = logging.getLogger(__name__)
EF_SEARCH = 1000
"""How many the graph's walk keeps: the most that pgvector knows."""
M, EF_CONSTRUCTION = 24, 200
"""Edges of a place in the graph, and how many the walk keeps that looks for them. With these 250,000 memories take
five and a half minutes to build and 290 MiB; what the graph alone finds of them: decision 34."""
BUILD_SECONDS, BUILD_SECONDS_PER_MEMORY = 1800.0, 0.02
"""How long a build may take. One whose graph outgrew its memory took more than 9 ms of processor time for
every memory that came after."""
BYTES_PER_DIMENSION, BYTES_PER_PLACE = 2, 1400
"""Of the graph while it is built: half floats, and edges both ways with what else pgvector notes of a place."""
LEAST_BUILD_MIB = 64
# The index's predicate is proved only against constants. Both settings hold for their transaction.
SETTINGS = f"{PLANNED}; SET LOCAL hnsw.ef_search = {EF_SEARCH}"
# An index's comment says whose it is; its name is a hash, because agents' names are longer than PostgreSQL allows.
_VALID = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid IN ('memory_vec'::regclass, 'agent_memories'::regclass) AND i.indisvalid AND c.relname = ANY($1)
"""
_KNOWN = """
SELECT DISTINCT substr(obj_description(c.oid, 'pg_class'), length($1) + 2) AS agent
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'memory_vec'::regclass AND starts_with(obj_description(c.oid, 'pg_class'), $1 || '/') ORDER BY 1
"""
_OWNED = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid IN ('memory_vec'::regclass, 'agent_memories'::regclass) AND obj_description(c.oid, 'pg_class') = $1
"""
_COUNT = "SELECT count(*) FROM memory_vec WHERE namespace = $1 AND agent_id = $2 AND embedder = $3"


class PgVectors:
    """See VectorStore. The plan it reports is `hnsw`.

    Args:
        dsn: of the login that owns the tables; the service's own role may not create indexes.
        build_mib: memory that PostgreSQL may take for building one index.
    """

    name = "hnsw"

    def __init__(self, db: Database, embedder: Embedder, dsn: str, build_mib: int) -> None:
        self._db = db
        self._embedder = embedder
        self._dsn = dsn
        self._build_mib = build_mib

    async def follow(self, namespace: str, agent: str) -> int:
        """Builds the agent's index if it has none by this embedder and these parameters; PostgreSQL itself keeps it up
        to date. One with other parameters answers until then."""
        name = index_name(namespace, agent, self._embedder.name)
        async with self._db.tenant(namespace) as connection:
            valid = bool(await connection.fetch(_VALID, [name]))
            owned = [row["relname"] for row in await connection.fetch(_OWNED, f"{namespace}/{agent}")]
        if not valid:
            await self._build(namespace, agent, name)
        of_embedder = _prefix(namespace, agent, self._embedder.name)
        await self._drop([other for other in owned if other.startswith(of_embedder) and other != name])
        return 0 if valid else await self.count(namespace, agent)

    async def nearest(self, namespace: str, agent: str, query: Query, k: int) -> list[Near]:
        """Exact, only slower, while there is no index; and where types or an instant leave too few of those that the
        walk kept, because pgvector looks at both after the walk."""
        halves = f"(embedding::halfvec({self._embedder.dimensions}))"
        async with self._db.tenant(namespace) as connection:
            await connection.execute(SETTINGS)
            rows = await connection.fetch(NEAREST.format(vector=halves, limit=k), *query.arguments(namespace, agent))
        if len(rows) < k:
            return await scanned(self._db, namespace, agent, query, k)
        return [Near(row["memory_id"], row["similarity"]) for row in rows]

    async def count(self, namespace: str, agent: str) -> int:
        """The rows: an index holds what they hold."""
        async with self._db.tenant(namespace) as connection:
            return int(await connection.fetchval(_COUNT, namespace, agent, self._embedder.name))

    async def forget(self, namespace: str, agent: str) -> None:
        """Drops the agent's indexes, whose definitions name it. Its rows are the memories' own business."""
        async with self._db.tenant(namespace) as connection:
            names = [row["relname"] for row in await connection.fetch(_OWNED, f"{namespace}/{agent}")]
        await self._drop(names)

    async def known(self, namespace: str) -> list[str]:
        """Agents with an index."""
        async with self._db.tenant(namespace) as connection:
            return [row["agent"] for row in await connection.fetch(_KNOWN, namespace)]

    async def ping(self) -> None:
        """PostgreSQL answers."""
        await self._db.ping()

    async def close(self) -> None:
        """The connections are the database's."""

    async def _build(self, namespace: str, agent: str, name: str) -> None:
        """Without blocking writers; an attempt that was cut off leaves an invalid index, which goes first."""
        scope = f"namespace = {_literal(namespace)} AND agent_id = {_literal(agent)}"
        vectors = (
            f"memory_vec USING hnsw ((embedding::halfvec({self._embedder.dimensions})) halfvec_ip_ops)"
            f" WITH (m = {M}, ef_construction = {EF_CONSTRUCTION})"
            f" WHERE {scope} AND embedder = {_literal(self._embedder.name)}"
        )
        rows = await self.count(namespace, agent)
        await self._alone(
            [
                f"SET maintenance_work_mem = '{self._megabytes(rows)}MB'",
                # One process: several would share the graph in /dev/shm, which is small in a container.
                "SET max_parallel_maintenance_workers = 0",
                f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
                f"CREATE INDEX CONCURRENTLY {name} ON {vectors}",
                f"COMMENT ON INDEX {name} IS {_literal(f'{namespace}/{agent}')}",
            ],
            BUILD_SECONDS + rows * BUILD_SECONDS_PER_MEMORY,
        )
        log.info("agent %s of %s has an index of its own now", agent, namespace)

    async def _drop(self, names: list[str]) -> None:
        await self._alone([f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in names])

    def _megabytes(self, rows: int) -> int:
        """What the whole graph takes while it is built, or as much of that as is allowed."""
        whole = rows * (BYTES_PER_DIMENSION * self._embedder.dimensions + BYTES_PER_PLACE) // 2**20
        return min(max(whole, LEAST_BUILD_MIB), self._build_mib)

    async def _alone(self, statements: list[str], seconds: float = BUILD_SECONDS) -> None:
        """Each in a transaction of its own, of at most so many seconds, on a connection of the tables' owner."""
        if not statements:
            return
        try:
            connection = await asyncpg.connect(self._dsn, timeout=5, command_timeout=seconds)
        except TRANSIENT as error:
            raise Unavailable("PostgreSQL") from error
        try:
            for statement in statements:
                await connection.execute(statement)
        except TRANSIENT as error:
            raise Unavailable("PostgreSQL") from error
        finally:
            await connection.close()


def index_name(namespace: str, agent: str, embedder: str) -> str:
    """One name for one agent, embedder and the graph's parameters, whatever the names hold."""
    return f"{_prefix(namespace, agent, embedder)}_m{M}_ef{EF_CONSTRUCTION}"


def _prefix(namespace: str, agent: str, embedder: str) -> str:
    # The whole name of an index that was built before names said the parameters.
    return "hnsw_" + hashlib.blake2b(f"{namespace}/{agent}/{embedder}".encode(), digest_size=12).hexdigest()


def _literal(value: str) -> str:
    """An SQL string. The values have validated alphabets; the quotes are doubled all the same."""
    return "'" + value.replace("'", "''") + "'"
