"""Weaviate as the vector store, with a tenant for each large agent: it follows the rows of PostgreSQL.

An index row says in `copied` which collection has its vector. The note is written after Weaviate has acknowledged, so
nothing is lost while it is away: the next pass finds the same rows again. What was deleted shows by the counts.

There is one collection for each embedder and one tenant, a shard of its own, for each agent: a search of one agent
never has to be filtered out of others'. Both are named by hashes, because Weaviate takes fewer characters than names of
agents have. Weaviate holds our own vectors and no texts.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import grpc
import httpx
import numpy as np
import weaviate
import weaviate.classes as wvc
from weaviate.exceptions import WeaviateBaseError

from learnloop_dataplane.errors import StoreAway, StoreLost
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.vectors.vector_store import Near, PgVectors

PAGE = 500
PAGES = 40  # of one agent in one pass
WAIT_SECONDS = 10.0
NEAREST_SECONDS = 0.5  # PostgreSQL looks at all vectors in about this time
PAUSE_SECONDS = 5.0  # between a failure and the next request
PREFIX = "LearnloopMemory"
CONNECT_SECONDS, ASK_SECONDS = 5, 5
GIVE_UP_SECONDS = 15.0  # of a request and the client's own repetitions, which go on for a minute
IDS_AT_ONCE = 1000
_MISSING = ("tenant not found", "could not find class", "class not found", "collection not found")
_TRANSIENT = (WeaviateBaseError, grpc.RpcError, httpx.HTTPError, OSError, TimeoutError)
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('vectors/' || $1 || '/' || $2, 0))"
_LARGE = """
SELECT agent_id FROM memory_index WHERE namespace = $1 AND $2 IN (embedder, next_embedder)
GROUP BY agent_id HAVING count(*) > $3 ORDER BY agent_id
"""
_NOT_COPIED = f"""
SELECT memory_id, CASE WHEN embedder = $3 THEN embedding ELSE next_embedding END AS embedding FROM memory_index
WHERE namespace = $1 AND agent_id = $2 AND $3 IN (embedder, next_embedder) AND copied IS DISTINCT FROM $4
    AND visible_to > now()
ORDER BY memory_id LIMIT {PAGE}
"""
_COPIED = """
UPDATE memory_index SET copied = $3 WHERE namespace = $1 AND agent_id = $2 AND memory_id = ANY($4::uuid[])
"""
_IDS = """
SELECT memory_id FROM memory_index WHERE namespace = $1 AND agent_id = $2 AND copied = $3 AND visible_to > now()
"""
_AGAIN = """
UPDATE memory_index SET copied = NULL WHERE namespace = $1 AND agent_id = $2 AND copied = $3
    AND ($4::uuid[] IS NULL OR memory_id = ANY($4))
"""
_NOTE = """
INSERT INTO memory_copies (namespace, agent_id, collection) VALUES ($1, $2, $3)
ON CONFLICT (namespace, agent_id) DO UPDATE SET collection = excluded.collection, followed_at = now()
"""
_COPIED_AGENTS = "SELECT agent_id FROM memory_copies WHERE namespace = $1 ORDER BY agent_id"
_FORGET = "DELETE FROM memory_copies WHERE namespace = $1 AND agent_id = $2"


class WeaviateTenants:
    """The requests learnloop makes of Weaviate; all of them name a tenant. They raise StoreAway, or StoreLost when the
    tenant or its collection is not there."""

    def __init__(self, host: str, port: int, grpc_host: str, grpc_port: int, *, secure: bool, key: str | None) -> None:
        self._client = weaviate.use_async_with_custom(
            http_host=host,
            http_port=port,
            http_secure=secure,
            grpc_host=grpc_host,
            grpc_port=grpc_port,
            grpc_secure=secure,
            auth_credentials=wvc.init.Auth.api_key(key) if key else None,
            additional_config=wvc.init.AdditionalConfig(
                timeout=wvc.init.Timeout(init=CONNECT_SECONDS, query=ASK_SECONDS, insert=GIVE_UP_SECONDS),
                trust_env=False,
            ),
            skip_init_checks=True,  # they ask a package registry which version of the client is the newest
        )
        self._connecting = asyncio.Lock()
        self._made: set[str] = set()

    async def ping(self) -> None:
        async with self._request():
            if not await self._client.is_ready():
                raise StoreAway("Weaviate is not ready")

    async def upsert(self, collection: str, tenant: str, vectors: dict[UUID, Sequence[float]]) -> None:
        """Writes these vectors, over those of the same ids. Some may have been written when it raises."""
        async with self._request():
            await self._make(collection)
            answer = await self._of(collection, tenant).data.insert_many(
                [wvc.data.DataObject(properties={}, uuid=uuid, vector=vector) for uuid, vector in vectors.items()]
            )
            if answer.has_errors:
                error = next(iter(answer.errors.values())).message
                raise StoreAway(f"Weaviate refused {len(answer.errors)} of {len(vectors)} vectors: {error[:300]}")

    async def delete(self, collection: str, tenant: str, ids: Sequence[UUID]) -> None:
        """Deletes these; those that are not there are ignored."""
        for start in range(0, len(ids), IDS_AT_ONCE):
            async with self._request():
                chosen = wvc.query.Filter.by_id().contains_any(list(ids[start : start + IDS_AT_ONCE]))
                answer = await self._of(collection, tenant).data.delete_many(chosen)
                if answer.failed:
                    raise StoreAway(f"Weaviate did not delete {answer.failed} vectors")

    async def ids(self, collection: str, tenant: str) -> set[UUID]:
        """All that the tenant holds."""
        held: set[UUID] = set()
        after: UUID | None = None
        while True:
            async with self._request():
                page = await self._of(collection, tenant).query.fetch_objects(
                    limit=IDS_AT_ONCE, after=after, return_properties=[]
                )
            held.update(UUID(str(item.uuid)) for item in page.objects)
            if len(page.objects) < IDS_AT_ONCE:
                return held
            after = page.objects[-1].uuid

    async def nearest(self, collection: str, tenant: str, vector: Sequence[float], k: int) -> list[UUID]:
        """At most k, nearest first."""
        async with self._request():
            answer = await self._of(collection, tenant).query.near_vector(
                near_vector=vector, limit=k, return_properties=[]
            )
        return [UUID(str(item.uuid)) for item in answer.objects]

    async def count(self, collection: str, tenant: str) -> int:
        """How many vectors the tenant holds."""
        async with self._request():
            answer = await self._of(collection, tenant).aggregate.over_all(total_count=True)
        return answer.total_count or 0

    async def drop(self, tenant: str) -> None:
        """Removes the tenant from every collection of learnloop's, and makes sure that it is gone."""
        async with self._request():
            for name in await self._client.collections.list_all():
                if name.startswith(PREFIX):
                    tenants = self._client.collections.use(name).tenants
                    await tenants.remove([tenant])
                    if await tenants.exists(tenant):
                        raise StoreAway(f"Weaviate still has tenant {tenant} of collection {name}")

    async def close(self) -> None:
        await self._client.close()

    def _of(self, collection: str, tenant: str) -> Any:
        return self._client.collections.use(collection).with_tenant(tenant)

    async def _make(self, collection: str) -> None:
        if collection in self._made:
            return
        if not await self._client.collections.exists(collection):
            await self._client.collections.create(
                collection,
                vector_config=wvc.config.Configure.Vectors.self_provided(
                    quantizer=wvc.config.Configure.VectorIndex.Quantizer.none(),  # the default would round to 8 bits
                    vector_index_config=wvc.config.Configure.VectorIndex.hnsw(
                        distance_metric=wvc.config.VectorDistances.DOT, ef_construction=128, max_connections=32
                    ),
                ),
                multi_tenancy_config=wvc.config.Configure.multi_tenancy(
                    enabled=True, auto_tenant_creation=True, auto_tenant_activation=True
                ),
            )
        self._made.add(collection)

    @asynccontextmanager
    async def _request(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                async with self._connecting:
                    if not self._client.is_connected():
                        await self._client.connect()
                yield
        except _TRANSIENT as error:
            message = f"Weaviate: {type(error).__name__}: {error}".splitlines()[0][:300]
            if any(text in str(error).lower() for text in _MISSING):
                self._made.clear()
                raise StoreLost(message) from error
            raise StoreAway(message) from error


def collection_of(embedder: str) -> str:
    """Vectors of two embedders are never in one collection."""
    return f"{PREFIX}_{_hash(embedder)}"


def tenant_of(namespace: str, agent: str) -> str:
    """One name for one agent; a namespace has no slash."""
    return _hash(f"{namespace}/{agent}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


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

    async def nearest(self, namespace: str, agent: str, near: Near) -> list[UUID]:
        """From PostgreSQL while Weaviate does not answer, and of types or an instant, which Weaviate does not know."""
        has_it = near.embedder == self._embedder and (namespace, agent) in self._held
        if has_it and near.types is None and near.at is None and time.monotonic() >= self._away_until:
            tenant = tenant_of(namespace, agent)
            try:
                async with asyncio.timeout(NEAREST_SECONDS):
                    return await self._tenants.nearest(self._collection, tenant, near.vector, near.k)
            except StoreLost:
                self._held.discard((namespace, agent))
            except (StoreAway, TimeoutError):
                self._away_until = time.monotonic() + PAUSE_SECONDS
        return await self._rows.nearest(namespace, agent, near)

    async def follow(self, namespace: str) -> int:
        """One agent after the other; agents that are large no longer go."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LARGE, namespace, self._embedder, self._above)
            copied = {row["agent_id"] for row in await connection.fetch(_COPIED_AGENTS, namespace)}
        large = [row["agent_id"] for row in rows]
        for agent in sorted(copied - set(large)):
            await self._forget(namespace, agent)
        return sum([await self._follow(namespace, agent) for agent in large])

    async def erased(self, namespace: str, agent: str | None) -> None:
        """Waits while another process follows the agent."""
        if agent is not None:
            await self._forget(namespace, agent)
            return
        async with self._db.tenant(namespace) as connection:
            copied = [row["agent_id"] for row in await connection.fetch(_COPIED_AGENTS, namespace)]
        for each in copied:
            await self._follow(namespace, each)

    async def ping(self) -> None:
        await self._tenants.ping()

    async def close(self) -> None:
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
                vectors = {row[0]: row[1].to_numpy().astype(np.float32) for row in rows}
                await self._tenants.upsert(collection, tenant, vectors)
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
