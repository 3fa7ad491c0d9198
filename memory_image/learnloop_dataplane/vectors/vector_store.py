"""The vector store port: the nearest memories of an agent too large to rank them all.

PostgreSQL is the system of record. A store may lag behind, and propose what has ended or was deleted since: recall
reads every proposed row in PostgreSQL, under row-level security, before it ranks it. A store that is late or wrong
costs recall, never truth.
"""

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from pgvector import HalfVector

from learnloop_dataplane.errors import StoreAway
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database

T = TypeVar("T")
_NEAREST = """
SELECT memory_id FROM memory_index
WHERE namespace = $1 AND agent_id = $2 AND $3 IN (embedder, next_embedder)
    AND visible_from <= coalesce($7, now()) AND visible_to > coalesce($7, now())
    AND ($6::smallint[] IS NULL OR memory_type = ANY($6))
ORDER BY CASE WHEN embedder = $3 THEN embedding ELSE next_embedding END <#> $4 LIMIT $5
"""
# Planned for the agent: a large one is worth parallel workers.
_PLANNED = "SET LOCAL plan_cache_mode = force_custom_plan"


@dataclass(frozen=True)
class Near:
    """A question's vector and its embedder, how many memories may be proposed, and of which types and when (None: any,
    now)."""

    embedder: str
    vector: Any
    k: int
    types: list[int] | None = None
    at: datetime | None = None


class VectorStore(Protocol):
    """Finds by the vectors of one embedder. Every method but `ping` and `close` is about one namespace.

    All raise Unavailable when PostgreSQL does not answer, and StoreAway when the store itself does not.
    """

    async def nearest(self, namespace: str, agent: str, near: Near) -> list[UUID]:
        """At most k memories, nearest first."""
        ...

    async def follow(self, namespace: str) -> int:
        """Takes in what was written for large agents, and removes what went; returns how many memories that were."""
        return 0

    async def erased(self, namespace: str, agent: str | None) -> None:
        """The store has nothing of an erased agent, nor (None) any other memory that PostgreSQL no longer has."""
        return

    async def ping(self) -> None:
        return

    async def close(self) -> None:
        return


class PgVectors(VectorStore):
    """pgvector: PostgreSQL looks at every vector of the agent. Exact, and half a microsecond for each.

    Never one index for all agents: filtered afterwards by `WHERE agent_id`, a global HNSW has a recall@10 of 0.04.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    async def nearest(self, namespace: str, agent: str, near: Near) -> list[UUID]:
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_PLANNED)
            vector = HalfVector(near.vector)
            rows = await connection.fetch(
                _NEAREST, namespace, agent, near.embedder, vector, near.k, near.types, near.at
            )
        return [row["memory_id"] for row in rows]


class Following:
    """Keeps the vector store up to date, and knows why it is behind.

    Args:
        store: None without an embedder: nothing to do.
    """

    def __init__(self, store: VectorStore | None, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self.problem = ""
        """Why the store does not take what it should; empty while it does."""

    async def ping(self) -> None:
        """Notice a store that is away before anything is written to it."""
        if self._store is not None:
            with suppress(StoreAway):
                await self._noted(self._store.ping())

    async def run(self, namespace: str) -> int:
        """Has the store take in what changed; returns how many memories that was.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not; PostgreSQL does its work until it does.
        """
        return 0 if self._store is None else await self._noted(self._store.follow(namespace))

    async def _noted(self, work: Awaitable[T]) -> T:
        try:
            done = await work
        except StoreAway as error:
            self.problem = str(error) or type(error).__name__
            raise
        else:
            self.problem = ""
            return done
        finally:
            self._metrics.vectors_up.set(not self.problem)
