"""Weaviate as the vector store, with a tenant for each large agent: it follows the rows of PostgreSQL.

An index row says in `copied` which collection has its vector. The note is written after Weaviate has acknowledged, so
nothing is lost while it is away: the next pass finds the same rows again. What was deleted shows by the counts.
"""

import asyncio
import time
from typing import Any
from uuid import UUID

import numpy as np

from learnloop_dataplane.errors import StoreAway, StoreLost
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.vectors.pgvector import PgVectors
from learnloop_dataplane.vectors.weaviate_tenants import TenantVector, WeaviateTenants, collection_of, tenant_of

PAGE = 500
PAGES = 40  # of one agent in one pass
WAIT_SECONDS = 10.0
NEAREST_SECONDS = 0.5  # PostgreSQL looks at all vectors in about this time
PAUSE_SECONDS = 5.0  # between a failure and the next request
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('vectors/' || $1 || '/' || $2, 0))"
_LARGE = """
SELECT agent_id FROM memory_index WHERE namespace = $1 AND $2 IN (embedder, next_embedder)
GROUP BY agent_id HAVING count(*) > $3 ORDER BY agent_id
"""
_NOT_COPIED = f"""
SELECT memory_id, CASE WHEN embedder = $3 THEN embedding ELSE next_embedding END AS embedding FROM memory_index
WHERE namespace = $1 AND agent_id = $2 AND $3 IN (embedder, next_embedder) AND copied IS DISTINCT FROM $4
ORDER BY memory_id LIMIT {PAGE}
"""
_COPIED = """
UPDATE memory_index SET copied = $3 WHERE namespace = $1 AND agent_id = $2 AND memory_id = ANY($4::uuid[])
"""
_IDS = "SELECT memory_id FROM memory_index WHERE namespace = $1 AND agent_id = $2 AND copied = $3"
_AGAIN = """
UPDATE memory_index SET copied = NULL WHERE namespace = $1 AND agent_id = $2 AND copied = $3
    AND ($4::uuid[] IS NULL OR memory_id = ANY($4))
"""
_NOTE = """
INSERT INTO memory_copies (namespace, agent_id, collection) VALUES ($1, $2, $3)
ON CONFLICT (namespace, agent_id) DO UPDATE SET collection = excluded.collection, followed_at = now()
"""
_KNOWN = "SELECT agent_id FROM memory_copies WHERE namespace = $1 ORDER BY agent_id"
_FORGET = "DELETE FROM memory_copies WHERE namespace = $1 AND agent_id = $2"


class WeaviateVectors:
    """See VectorStore. An agent that it does not have yet, and an embedder that it does not follow, are PostgreSQL's.

    Args:
        embedder: name of the embedder whose vectors it holds.
        above: agents with more memories than this have a tenant.
    """

    def __init__(self, db: Database, tenants: WeaviateTenants, embedder: str, above: int) -> None:
        self._db = db
        self._tenants = tenants
        self._embedder = embedder
        self._above = above
        self._collection = collection_of(embedder)
        self._rows = PgVectors(db)
        self._held: set[tuple[str, str]] = set()
        self._away_until = 0.0

    async def nearest(self, namespace: str, agent: str, embedder: str, vector: Any, k: int) -> list[UUID]:
        """From PostgreSQL while Weaviate does not answer."""
        if embedder == self._embedder and (namespace, agent) in self._held and time.monotonic() >= self._away_until:
            try:
                async with asyncio.timeout(NEAREST_SECONDS):
                    return await self._tenants.nearest(self._collection, tenant_of(namespace, agent), vector, k)
            except StoreLost:
                self._held.discard((namespace, agent))
            except (StoreAway, TimeoutError):
                self._away_until = time.monotonic() + PAUSE_SECONDS
        return await self._rows.nearest(namespace, agent, embedder, vector, k)

    async def follow(self, namespace: str) -> int:
        """One agent after the other; agents that are large no longer go."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LARGE, namespace, self._embedder, self._above)
            known = {row["agent_id"] for row in await connection.fetch(_KNOWN, namespace)}
        large = [row["agent_id"] for row in rows]
        for agent in sorted(known - set(large)):
            await self._forget(namespace, agent)
        return sum([await self._follow(namespace, agent) for agent in large])

    async def erased(self, namespace: str, agent: str | None) -> None:
        """Waits while another process follows the agent."""
        if agent is not None:
            await self._forget(namespace, agent)
            return
        async with self._db.tenant(namespace) as connection:
            known = [row["agent_id"] for row in await connection.fetch(_KNOWN, namespace)]
        for each in known:
            await self._follow(namespace, each)

    async def ping(self) -> None:
        """Weaviate takes requests."""
        await self._tenants.ping()

    async def close(self) -> None:
        """Closes the connections."""
        await self._tenants.close()

    async def _follow(self, namespace: str, agent: str) -> int:
        tenant, collection = tenant_of(namespace, agent), self._collection
        changed = 0
        async with self._db.tenant(namespace) as connection:
            await _alone(connection, namespace, agent)
            for _ in range(PAGES):
                rows = await connection.fetch(_NOT_COPIED, namespace, agent, self._embedder, collection)
                if not rows:
                    break
                items = [TenantVector(row[0], row[1].to_numpy().astype(np.float32)) for row in rows]
                await self._tenants.upsert(collection, tenant, items)
                await connection.execute(_COPIED, namespace, agent, collection, [row[0] for row in rows])
                changed += len(rows)
            else:
                return changed
            wanted = {row["memory_id"] for row in await connection.fetch(_IDS, namespace, agent, collection)}
            try:
                if await self._tenants.count(collection, tenant) != len(wanted):
                    held = await self._tenants.ids(collection, tenant)
                    await self._tenants.delete(collection, tenant, sorted(held - wanted))
                    await connection.execute(_AGAIN, namespace, agent, collection, sorted(wanted - held))
                    changed += len(held ^ wanted)
            except StoreLost:
                await connection.execute(_AGAIN, namespace, agent, collection, None)
                return changed
            await connection.execute(_NOTE, namespace, agent, collection)
        self._held.add((namespace, agent))
        return changed

    async def _forget(self, namespace: str, agent: str) -> None:
        self._held.discard((namespace, agent))
        async with self._db.tenant(namespace) as connection:
            await _alone(connection, namespace, agent)
            await self._tenants.drop(tenant_of(namespace, agent))
            await connection.execute(_AGAIN, namespace, agent, self._collection, None)
            await connection.execute(_FORGET, namespace, agent)


async def _alone(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends no other process writes this tenant: a late write of what was erased would stay."""
    try:
        await connection.execute(_ALONE, namespace, agent, timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise StoreAway("another process is filling the agent's tenant of Weaviate") from error
