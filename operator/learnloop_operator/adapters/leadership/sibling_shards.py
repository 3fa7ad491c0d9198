"""When one shard may take a namespace that another one still claims: docs/decisions/0066-operator-shards.md.

A claim outlives its process by minutes, because nobody else can tell whether it still works. A sibling can tell: by the
other shard's leader Lease, whose holder alone may write, and which says by how many shards that holder divides.
"""

import logging
from collections.abc import Mapping
from typing import Any

from learnloop_api import names
from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.errors import KubeError
from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.core.coordination.shards import MOST, Shard, shard_of

log = logging.getLogger(__name__)


class SiblingShards:
    """The shards of one installation, as one of them sees the others.

    Args:
        name: the installation's leader Lease, which is the first shard's.
    """

    def __init__(self, kube: KubeClient, namespace: str, name: str, shard: Shard) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self.shard = shard
        self.installation = self._identity(shard.index)
        """Under which this shard claims namespaces."""
        self._siblings = {self._identity(i): Shard(i, i + 1) for i in range(MOST) if i != shard.index}

    def known(self, holder: str) -> bool:
        """The holder of a claim is another shard of this installation."""
        return holder in self._siblings

    async def vacant(self, holder: str, namespace: str) -> bool:
        """Nothing is written to the namespace any more by the sibling that claims it, nor will be.

        Its leader Lease was given up, or is held by a process that divides so that the namespace is not its own. To be
        asked after the claim was read: who comes to lead in between renews the claim, and ours is then refused.
        """
        sibling = self._siblings.get(holder)
        if sibling is None:
            return False
        try:
            lease = await self._kube.find(LEASE, self._namespace, sibling.lease(self._name))
        except KubeError as error:
            log.info("the Lease of %s cannot be read: %s", holder, error)
            return False
        if lease is None:  # somebody deleted it; its holder may be alive, and makes it anew
            return False
        count = shards_of(lease)
        if count is None:
            if sibling.index:  # no shard of ours ever led there
                return False
            count = 1
        if not (lease.get("spec") or {}).get("holderIdentity"):
            return True
        return shard_of(namespace, count) != sibling.index

    def _identity(self, index: int) -> str:
        return f"{self._namespace}/{Shard(index, MOST).lease(self._name)}"


def shards_of(lease: Mapping[str, Any]) -> int | None:
    """By how many its holder divides; None where it does not say."""
    text = str(((lease.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_SHARDS, ""))
    return int(text) if text.isdecimal() and 0 < int(text) <= MOST else None
