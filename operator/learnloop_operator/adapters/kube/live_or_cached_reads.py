"""Where a pass reads: live from the API server, or from the cache when the object is at rest.

See docs/decisions/0010-reads-from-the-watch-cache.md for why that is safe.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from learnloop_api import names
from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.errors import KindMissing, KubeError, NotFound
from learnloop_operator.adapters.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    GANG_KINDS,
    NETWORK_POLICY,
    OWN_KINDS,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ResourceKind,
)
from learnloop_operator.adapters.kube.object_cache import Object, ObjectCache
from learnloop_operator.core.plan import Manifest

log = logging.getLogger(__name__)

_MANAGED = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
_CHILDREN = (DEPLOYMENT, STATEFUL_SET, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)
CACHED: Mapping[ResourceKind, str] = {
    **dict.fromkeys(OWN_KINDS, ""),
    **dict.fromkeys(_CHILDREN, _MANAGED),
    **dict.fromkeys(GANG_KINDS, names.LABEL_TRAINING_JOB),
}
"""Kinds that are kept, with the label selector of those that matter. No Secrets: nothing that is kept can leak."""

LISTINGS = 4
"""Kinds listed at once: nothing is gained by more of them, and what each answers has to be held."""


class Reader(Protocol):
    """What a controller asks; raises as KubeClient does."""

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        """One object."""

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """One object, or None."""

    async def list(
        self, kind: ResourceKind, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """All objects that match."""

    async def admitted(self, manifest: Manifest) -> Object:
        """The object as the API server would keep it; nothing is made."""


class LiveOrCachedReads:
    """A Reader that is live, except inside `from_cache`."""

    def __init__(self, kube: KubeClient, cache: ObjectCache, namespaces: Sequence[str] = ()) -> None:
        self.cache, self._kube, self._namespaces = cache, kube, namespaces or (None,)
        self._cached: ContextVar[bool] = ContextVar("cached", default=False)

    @contextmanager
    def from_cache(self) -> Iterator[None]:
        """Everything this task (and the tasks it starts) reads may come from the cache."""
        token = self._cached.set(True)
        try:
            yield
        finally:
            self._cached.reset(token)

    async def refresh(self) -> None:
        """List every kind anew. A kind that cannot be listed stays as it was: unlisted ones are read live."""
        turns = asyncio.Semaphore(LISTINGS)
        await asyncio.gather(*(self._refresh(kind, labels, turns) for kind, labels in CACHED.items()))

    async def _refresh(self, kind: ResourceKind, labels: str, turns: asyncio.Semaphore) -> None:
        try:
            async with turns:
                await self._list_all(kind, labels)
        except NotFound:
            log.debug("%s: no such kind here", kind.kind)
            self.cache.unlisted(kind)
        except KubeError as error:
            log.warning("%s not listed, the cache may be older than it could be: %s", kind.kind, error)

    async def _list_all(self, kind: ResourceKind, labels: str) -> None:
        present: set[tuple[str, str]] = set()
        oldest = ""
        for namespace in self._namespaces:
            async for items, version in self._kube.pages(kind, namespace, labels=labels):
                for item in items:
                    self.cache.put(kind, item)
                    present.add((item["metadata"]["namespace"], item["metadata"]["name"]))
                oldest = oldest or version
                await asyncio.sleep(0)  # others may go first: a page of 500 takes a while to look through
        self.cache.listed(kind, present, oldest)

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        """One object.

        Raises:
            NotFound: no such object, or no such kind.
            KubeError: anything else.
        """
        if self._cached.get() and self.cache.unknown(kind):
            raise KindMissing(f"the API server knows no {kind.kind} of {kind.api_version}", status=404)
        if self._asks_cache(kind) and name not in self.cache.doubted(kind, namespace):
            found = self.cache.get(kind, namespace, name)
            if found is None:
                raise NotFound(f"{kind.kind} {namespace}/{name} is not known", status=404, reason="NotFound")
            return found
        try:
            live = await self._kube.get(kind, namespace, name)
        except NotFound:
            self.cache.settle(kind, namespace, name, None)
            raise
        self.cache.settle(kind, namespace, name, live)
        return live

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """One object, or None when it (or its kind) does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def list(
        self, kind: ResourceKind, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """All objects that match; each with apiVersion and kind."""
        terms = _terms(labels)
        if namespace is None or fields or terms is None or not self._asks_cache(kind):
            return await self._kube.list(kind, namespace, labels=labels, fields=fields, recent=self._cached.get())
        for name in self.cache.doubted(kind, namespace):
            await self.find(kind, namespace, name)
        return self.cache.select(kind, namespace, terms)

    async def admitted(self, manifest: Manifest) -> Object:
        """The object as the API server would keep it; nothing is made. Always asked live."""
        return await self._kube.admitted(manifest)

    def _asks_cache(self, kind: ResourceKind) -> bool:
        return self._cached.get() and self.cache.complete(kind)


def _terms(labels: str) -> dict[str, str] | None:
    """The pairs of an equality selector; None for any other."""
    pairs = [term.partition("=") for term in labels.split(",") if term]
    return {key: value for key, _, value in pairs} if all(middle for _, middle, _ in pairs) else None
