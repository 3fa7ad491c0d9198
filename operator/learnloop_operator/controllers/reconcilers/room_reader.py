"""What bounds the pods of a namespace, and which gangs were promised room a moment ago."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime

from learnloop_operator.adapters.kube.errors import KubeError
from learnloop_operator.adapters.kube.kinds import LIMIT_RANGE, RESOURCE_QUOTA
from learnloop_operator.adapters.kube.live_or_cached_reads import Reader
from learnloop_operator.core.coordination.namespace_room import NamespaceRoom, PodGroup
from learnloop_operator.core.training.snapshot import TrainingSnapshot

log = logging.getLogger(__name__)
PROMISED_SECONDS = 60.0
"""How long room is kept for a gang whose pods do not come: something else keeps them, and others may begin."""
SETTLED_SECONDS = 10.0
"""How long room is kept at least: what another run has read of the quotas may be older than the pods."""


class RoomReader:
    """Asked only for runs whose pods are not all there: two short lists a pass."""

    def __init__(self, kube: Reader) -> None:
        self._kube = kube
        self._promised: dict[tuple[str, str], tuple[PodGroup, datetime]] = {}
        self._made: set[tuple[str, str]] = set()

    async def bounds(self, namespace: str) -> NamespaceRoom | None:
        """Quotas and LimitRanges; None where there is no quota, or where they cannot be read: the API server has the
        last word in any case."""
        try:
            quotas, ranges = await asyncio.gather(
                self._kube.list(RESOURCE_QUOTA, namespace), self._kube.list(LIMIT_RANGE, namespace)
            )
        except KubeError as error:
            log.debug("quotas of %s not read: %s", namespace, error)
            return None
        return NamespaceRoom(tuple(quotas), tuple(ranges)) if quotas else None

    def beside(self, snapshot: TrainingSnapshot) -> NamespaceRoom | None:
        """The room that is left beside what other gangs of the namespace were promised."""
        if snapshot.room is None:
            return None
        for key, (_, since) in list(self._promised.items()):
            age = (snapshot.now - since).total_seconds()
            if age > PROMISED_SECONDS or (key in self._made and age > SETTLED_SECONDS):
                del self._promised[key]
                self._made.discard(key)
        others = [
            group
            for (namespace, name), (group, _) in self._promised.items()
            if namespace == snapshot.namespace and name != snapshot.name
        ]
        return replace(snapshot.room, promised=tuple(others))

    def promise(self, namespace: str, name: str, gang: PodGroup, now: datetime) -> None:
        """This gang begins."""
        self._promised[namespace, name] = (gang, now)
        self._made.discard((namespace, name))

    def made(self, namespace: str, name: str) -> None:
        """Its pods are all there, or it wants none any more."""
        if (namespace, name) in self._promised:
            self._made.add((namespace, name))
