"""Weaviate spoken to: one collection for each embedder, one tenant for each agent, our own vectors, no texts.

Tenants and collections are named by hashes, because Weaviate takes fewer characters than agents' names have. A tenant
is a shard of its own, so a search of one agent never has to be filtered out of others'.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import grpc
import httpx
import weaviate
from weaviate.classes.config import Configure, VectorDistances
from weaviate.classes.data import DataObject
from weaviate.classes.init import AdditionalConfig, Auth, Timeout
from weaviate.classes.query import Filter
from weaviate.exceptions import WeaviateBaseError

from learnloop_dataplane.errors import StoreAway, StoreLost

log = logging.getLogger(__name__)
PREFIX = "LearnloopMemory"
CONNECT_SECONDS, ASK_SECONDS = 5, 5
GIVE_UP_SECONDS = 15.0  # of a request and the client's own repetitions, which go on for a minute
ANEW_SECONDS = 3.0  # between two connections
PAGE = 1000
_MISSING = ("tenant not found", "could not find class", "class not found", "collection not found")
_TRANSIENT = (WeaviateBaseError, grpc.RpcError, httpx.HTTPError, OSError, TimeoutError)


class TenantVector(NamedTuple):
    """One vector as a tenant holds it, float32 [dimensions]."""

    id: UUID
    vector: Sequence[float]


class Address(NamedTuple):
    """Address of a Weaviate."""

    host: str
    port: int
    secure: bool
    grpc_host: str
    grpc_port: int


class WeaviateTenants:
    """The requests learnloop makes of Weaviate; all of them name a tenant. They raise StoreAway, or StoreLost when the
    tenant or its collection is not there."""

    def __init__(self, address: Address, key: str | None) -> None:
        self._client = weaviate.use_async_with_custom(
            http_host=address.host,
            http_port=address.port,
            http_secure=address.secure,
            grpc_host=address.grpc_host,
            grpc_port=address.grpc_port,
            grpc_secure=address.secure,
            auth_credentials=Auth.api_key(key) if key else None,
            additional_config=AdditionalConfig(
                timeout=Timeout(init=CONNECT_SECONDS, query=ASK_SECONDS, insert=GIVE_UP_SECONDS), trust_env=False
            ),
            skip_init_checks=True,  # they ask a package registry which version of the client is the newest
        )
        self._connecting = asyncio.Lock()
        self._broken = False
        self._connected = 0.0
        self._made: set[str] = set()

    async def ping(self) -> None:
        """Weaviate takes requests."""
        async with self._asked():
            if not await self._client.is_ready():
                raise StoreAway("Weaviate is not ready")

    async def upsert(self, collection: str, tenant: str, items: Sequence[TenantVector]) -> None:
        """Writes these vectors, over those of the same ids. Some may have been written when it raises."""
        async with self._asked():
            await self._make(collection)
            answer = await self._of(collection, tenant).data.insert_many(
                [DataObject(properties={}, uuid=item.id, vector=item.vector) for item in items]
            )
            if answer.has_errors:
                error = next(iter(answer.errors.values())).message
                raise StoreAway(f"Weaviate refused {len(answer.errors)} of {len(items)} vectors: {error[:300]}")

    async def delete(self, collection: str, tenant: str, ids: Sequence[UUID]) -> None:
        """Deletes these; those that are not there are ignored."""
        async with self._asked() as limit:
            for start in range(0, len(ids), PAGE):
                _again(limit)
                chosen = Filter.by_id().contains_any(list(ids[start : start + PAGE]))
                answer = await self._of(collection, tenant).data.delete_many(chosen)
                if answer.failed:
                    raise StoreAway(f"Weaviate did not delete {answer.failed} vectors")

    async def ids(self, collection: str, tenant: str) -> set[UUID]:
        """All that the tenant holds."""
        async with self._asked() as limit:
            found: set[UUID] = set()
            after: UUID | None = None
            while True:
                _again(limit)
                page = await self._of(collection, tenant).query.fetch_objects(
                    limit=PAGE, after=after, return_properties=[]
                )
                found.update(UUID(str(item.uuid)) for item in page.objects)
                if len(page.objects) < PAGE:
                    return found
                after = page.objects[-1].uuid

    async def nearest(self, collection: str, tenant: str, vector: Sequence[float], k: int) -> list[UUID]:
        """At most k, nearest first."""
        async with self._asked():
            answer = await self._of(collection, tenant).query.near_vector(
                near_vector=vector, limit=k, return_properties=[]
            )
        return [UUID(str(item.uuid)) for item in answer.objects]

    async def count(self, collection: str, tenant: str) -> int:
        """How many vectors the tenant holds."""
        async with self._asked():
            answer = await self._of(collection, tenant).aggregate.over_all(total_count=True)
        return answer.total_count or 0

    async def drop(self, tenant: str, *, but: str | None = None) -> None:
        """Removes the tenant from every collection of learnloop's but this one, and makes sure that it is gone."""
        async with self._asked():
            for name in await self._client.collections.list_all():
                if name.startswith(PREFIX) and name != but:
                    tenants = self._client.collections.use(name).tenants
                    await tenants.remove([tenant])
                    if await tenants.exists(tenant):
                        raise StoreAway(f"Weaviate still has tenant {tenant} of collection {name}")

    async def close(self) -> None:
        """Gives the connections back."""
        await self._client.close()

    def _of(self, collection: str, tenant: str) -> Any:
        return self._client.collections.use(collection).with_tenant(tenant)

    async def _make(self, collection: str) -> None:
        if collection in self._made:
            return
        if not await self._client.collections.exists(collection):
            await self._client.collections.create(
                collection,
                vector_config=Configure.Vectors.self_provided(
                    quantizer=Configure.VectorIndex.Quantizer.none(),  # the default would round to 8 bits
                    vector_index_config=Configure.VectorIndex.hnsw(
                        distance_metric=VectorDistances.DOT, ef_construction=128, max_connections=32
                    ),
                ),
                multi_tenancy_config=Configure.multi_tenancy(
                    enabled=True, auto_tenant_creation=True, auto_tenant_activation=True
                ),
            )
        self._made.add(collection)

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[asyncio.Timeout]:
        """Yields what ends it after GIVE_UP_SECONDS: whoever makes several requests has it begin anew with each."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS) as limit:
                await self._connect()
                yield limit
        except _TRANSIENT as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            if any(text in str(error).lower() for text in _MISSING):
                self._made.clear()
                raise StoreLost(f"Weaviate: {said}") from error
            self._broken = True
            raise StoreAway(f"Weaviate: {said}") from error

    async def _connect(self) -> None:
        """Anew after a failure: a channel that could not connect a few times waits up to two minutes before it tries
        again, however soon Weaviate is back."""
        async with self._connecting:
            if self._broken and time.monotonic() - self._connected > ANEW_SECONDS and self._client.is_connected():
                await self._client.close()
            if not self._client.is_connected():
                await self._client.connect()
                self._broken, self._connected = False, time.monotonic()


def _again(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time() + GIVE_UP_SECONDS)


def collection_of(embedder: str) -> str:
    """Vectors of two embedders are never in one collection."""
    return f"{PREFIX}_{_hash(embedder)}"


def tenant_of(namespace: str, agent: str) -> str:
    """One name for one agent; a namespace has no slash."""
    return _hash(f"{namespace}/{agent}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
