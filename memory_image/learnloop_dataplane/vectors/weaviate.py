"""Weaviate as the vector store: it follows the rows of PostgreSQL, and nothing is lost while it is away.

A copy like those in processes (`recall.cached_agents`): `memory_copies` says up to which snapshot a tenant has taken in
its agent's memories, and the transactions in the rows say what came later. The snapshot only moves on once Weaviate has
acknowledged everything, so a store has nothing to queue: whatever happens, the next pass finds the same rows again.
"""

import asyncio
import time
from typing import Any
from uuid import UUID

import numpy as np

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import StoreAway, StoreLost
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.ranking.column_queries import END, SINCE
from learnloop_dataplane.vectors.vector_store import Near
from learnloop_dataplane.vectors.weaviate_tenants import TenantVector, WeaviateTenants, collection_of, tenant_of

PAGE = 500
WAIT_SECONDS = 10.0
NEAREST_SECONDS = 0.5  # a scan of the agent takes about as long
PAUSE_SECONDS = 5.0  # after a failure nobody waits for Weaviate again for so long
RENEW_SECONDS = 3600  # the snapshot of an agent that does not change; deletions are remembered for a day
_LOCK = "hashtextextended('vectors/' || $1 || '/' || $2, 0)"
_ALONE = f"SELECT pg_advisory_xact_lock({_LOCK})"
# A snapshot of the future is of a database that was restored from a dump and counts its transactions anew.
_STATE = """
SELECT collection, snapshot, now() - followed_at > make_interval(secs => $3) AS due,
    now() - followed_at > interval '12 hours' OR EXISTS(SELECT 1 FROM memory_gone g
        WHERE g.namespace = $1 AND g.agent_id = $2 AND {since}) AS gone
FROM memory_copies c WHERE namespace = $1 AND agent_id = $2
    AND pg_snapshot_xmax(snapshot::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
""".format(since=SINCE.format(table="g", base="c.snapshot::pg_snapshot"))
_COLUMNS = """
SELECT memory_id, memory_type, extract(epoch FROM visible_from)::float8 AS begins,
    extract(epoch FROM visible_to)::float8 AS ends, embedding
FROM memory_vec v WHERE namespace = $1 AND agent_id = $2 AND embedder = $3 AND memory_id > $4 AND memory_id <= $5
"""
_ALL = f"{_COLUMNS} ORDER BY memory_id LIMIT {PAGE}"
_CHANGED = f"{_COLUMNS} AND {SINCE.format(table='v', base='$6::text::pg_snapshot')} ORDER BY memory_id LIMIT {PAGE}"
_CHOSEN = f"{_COLUMNS} AND memory_id = ANY($6::uuid[]) ORDER BY memory_id LIMIT {PAGE}"
_IDS = "SELECT memory_id FROM memory_vec WHERE namespace = $1 AND agent_id = $2 AND embedder = $3"
_SAVE = """
INSERT INTO memory_copies (namespace, agent_id, collection, snapshot) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, agent_id) DO UPDATE
SET collection = excluded.collection, snapshot = excluded.snapshot, followed_at = now()
"""
_KNOWN = "SELECT agent_id FROM memory_copies WHERE namespace = $1 ORDER BY agent_id"
_FORGET = "DELETE FROM memory_copies WHERE namespace = $1 AND agent_id = $2"
_FIRST = UUID(int=0)


class WeaviateVectors:
    """See VectorStore. The plan it reports is `weaviate`."""

    name = "weaviate"

    def __init__(self, db: Database, embedder: Embedder, tenants: WeaviateTenants) -> None:
        self._db = db
        self._embedder = embedder
        self._tenants = tenants
        self._collection = collection_of(embedder.name)
        self._away_until = 0.0

    async def follow(self, namespace: str, agent: str) -> int:
        """Waits while another process follows the same agent, a few seconds at most."""
        async with self._db.tenant(namespace) as connection:
            await _alone(connection, namespace, agent)
            # Read before the rows: what is committed in between is read twice, and never not at all.
            snapshot = await connection.fetchval("SELECT pg_current_snapshot()::text")
            state = await connection.fetchrow(_STATE, namespace, agent, RENEW_SECONDS)
            if state is None or state["collection"] != self._collection:
                changed = await self._fill(connection, namespace, agent)
            else:
                changed = await self._catch_up(connection, namespace, agent, state)
            if changed or state is None or state["due"] or state["gone"]:
                await connection.execute(_SAVE, namespace, agent, self._collection, snapshot)
        return changed

    async def nearest(self, namespace: str, agent: str, query: Query, k: int) -> list[Near]:
        """While Weaviate is away, most calls fail at once."""
        if time.monotonic() < self._away_until:
            raise StoreAway("Weaviate did not answer a moment ago")
        at = query.at.timestamp() if query.at else time.time()
        tenant = tenant_of(namespace, agent)
        try:
            async with asyncio.timeout(NEAREST_SECONDS):
                return await self._tenants.nearest(self._collection, tenant, query.vector, k, query.kinds(), at)
        except StoreLost:
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_FORGET, namespace, agent)  # so that the next pass fills it
            raise
        except (StoreAway, TimeoutError) as error:
            self._away_until = time.monotonic() + PAUSE_SECONDS
            raise StoreAway(str(error) or f"Weaviate took longer than {NEAREST_SECONDS} s") from error

    async def count(self, namespace: str, agent: str) -> int:
        """Zero for an agent it never had."""
        try:
            return await self._tenants.count(self._collection, tenant_of(namespace, agent))
        except StoreLost:
            return 0

    async def forget(self, namespace: str, agent: str) -> None:
        """Waits for whoever follows the agent, and makes sure that the tenant is gone."""
        async with self._db.tenant(namespace) as connection:
            await _alone(connection, namespace, agent)
            await self._tenants.drop(tenant_of(namespace, agent))
            await connection.execute(_FORGET, namespace, agent)

    async def known(self, namespace: str) -> list[str]:
        """Agents with a tenant."""
        async with self._db.tenant(namespace) as connection:
            return [row["agent_id"] for row in await connection.fetch(_KNOWN, namespace)]

    async def ping(self) -> None:
        """Weaviate takes requests."""
        await self._tenants.ping()

    async def close(self) -> None:
        """Gives the connections back."""
        await self._tenants.close()

    async def _fill(self, connection: Any, namespace: str, agent: str) -> int:
        """From nothing, and out of other embedders' collections: what PostgreSQL no longer has is nowhere then."""
        await self._tenants.drop(tenant_of(namespace, agent))
        return await self._write(connection, namespace, agent, _ALL)

    async def _catch_up(self, connection: Any, namespace: str, agent: str, state: Any) -> int:
        try:
            written = await self._write(connection, namespace, agent, _CHANGED, state["snapshot"])
            if written or state["gone"] or state["due"]:
                written += await self._compare(connection, namespace, agent)
        except StoreLost:
            return await self._fill(connection, namespace, agent)
        return written

    async def _compare(self, connection: Any, namespace: str, agent: str) -> int:
        """Removes what PostgreSQL no longer has, and writes what Weaviate has lost."""
        tenant = tenant_of(namespace, agent)
        held = await self._tenants.ids(self._collection, tenant)
        rows = await connection.fetch(_IDS, namespace, agent, self._embedder.name)
        wanted = {row["memory_id"] for row in rows}
        await self._tenants.delete(self._collection, tenant, sorted(held - wanted))
        missing = sorted(wanted - held)
        for start in range(0, len(missing), PAGE):
            await self._write(connection, namespace, agent, _CHOSEN, missing[start : start + PAGE])
        return len(held ^ wanted)

    async def _write(self, connection: Any, namespace: str, agent: str, statement: str, *more: Any) -> int:
        written, last, end = 0, _FIRST, await connection.fetchval(END, namespace, agent)
        while rows := await connection.fetch(statement, namespace, agent, self._embedder.name, last, end, *more):
            items = [TenantVector(row[0], row[1], row[2], row[3], row[4].to_numpy().astype(np.float32)) for row in rows]
            await self._tenants.upsert(self._collection, tenant_of(namespace, agent), items)
            written, last = written + len(rows), rows[-1][0]
        return written


async def _alone(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends nobody else writes this tenant: a late write of what was erased would stay."""
    try:
        await connection.execute(_ALONE, namespace, agent, timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise StoreAway("another process is filling the agent's tenant of Weaviate") from error
