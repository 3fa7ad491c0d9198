"""Reads of a pass: from the cache where a watch or our own writes keep a kind current, else from the API server.

A stale entry can make a pass do too little, never too much: each write carries the resourceVersion that it was decided
on. See docs/decisions/0010-reads-from-the-watch-cache.md.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from learnloop_api import names
from learnloop_operator.kube import errors, fenced_client, object_cache
from learnloop_operator.kube.kinds import (
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

log = logging.getLogger(__name__)

_MANAGED = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
_CHILDREN = (DEPLOYMENT, STATEFUL_SET, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)
CACHED: Mapping[ResourceKind, str] = {
    **dict.fromkeys(OWN_KINDS, ""),
    **dict.fromkeys(_CHILDREN, _MANAGED),
    **dict.fromkeys(GANG_KINDS, names.LABEL_TRAINING_JOB),
}
"""Cached kinds, with the label selector of the objects that matter. No Secrets: what is not cached cannot leak."""

LISTINGS = 4
"""Kinds listed in parallel: more bring nothing, and each answer has to be held in memory."""


class CachedReads:
    """A Reader over the cache; kinds that were not listed yet are read live."""

    def __init__(
        self,
        kube: fenced_client.KubeClient,
        cache: object_cache.ObjectCache,
        namespaces: Sequence[str] = (),
    ) -> None:
        self.cache, self._kube, self._namespaces = cache, kube, namespaces or (None,)

    async def refresh(self, kinds: Iterable[ResourceKind] = tuple(CACHED)) -> None:
        """List cached kinds, all by default. One that cannot be listed stays as it was."""
        slots = asyncio.Semaphore(LISTINGS)
        await asyncio.gather(*(self._refresh(kind, CACHED[kind], slots) for kind in kinds))

    async def _refresh(self, kind: ResourceKind, labels: str, slots: asyncio.Semaphore) -> None:
        try:
            async with slots:
                await self._list_all(kind, labels)
        except errors.NotFound:
            log.debug("%s: no such kind here", kind.kind)
            self.cache.unlisted(kind)
        except errors.KubeError as error:
            log.warning("%s not listed, the cache may be stale: %s", kind.kind, error)

    async def _list_all(self, kind: ResourceKind, labels: str) -> None:
        present: set[tuple[str, str]] = set()
        oldest = ""
        for namespace in self._namespaces:
            async for items, version in self._kube.pages(kind, namespace, labels=labels):
                for item in items:
                    self.cache.put(kind, item)
                    present.add((item["metadata"]["namespace"], item["metadata"]["name"]))
                oldest = oldest or version
                await asyncio.sleep(0)  # other tasks go on: a page takes a while to look through
        self.cache.listed(kind, present, oldest)

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> object_cache.Object:
        if not self.cache.complete(kind):
            return await self._kube.get(kind, namespace, name)
        result = self.cache.get(kind, namespace, name)
        if result is None:
            raise errors.NotFound(f"{kind.kind} {namespace}/{name} is not known", status=404, reason="NotFound")
        return result

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> object_cache.Object | None:
        """One object, or None when it (or its kind) does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except errors.NotFound:
            return None

    async def relearn(self, kind: ResourceKind, namespace: str, name: str) -> object_cache.Object | None:
        """Read one object live and correct its entry in the cache."""
        return await self._kube.relearn(kind, namespace, name)

    async def list(
        self, kind: ResourceKind, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> list[object_cache.Object]:
        """All objects that match; each with apiVersion and kind."""
        terms = _terms(labels)
        if namespace is None or fields or terms is None or not self.cache.complete(kind):
            return await self._kube.list(kind, namespace, labels=labels, fields=fields)
        return self.cache.select(kind, namespace, terms)


Reader = fenced_client.KubeClient | CachedReads
"""Source of a controller's reads."""


def _terms(labels: str) -> dict[str, str] | None:
    """The pairs of an equality selector; None for any other."""
    pairs = [term.partition("=") for term in labels.split(",") if term]
    return {key: value for key, _, value in pairs} if all(middle for _, middle, _ in pairs) else None
