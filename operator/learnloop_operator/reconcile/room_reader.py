"""What bounds the pods of a namespace, what a rank asks for there, and which gangs were promised room a moment ago."""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import datetime

from learnloop_operator.core.coordination.namespace_room import NamespaceRoom, PodGroup
from learnloop_operator.core.plan import Manifest
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import Forbidden, KubeError
from learnloop_operator.kube.kinds import LIMIT_RANGE, POD, RESOURCE_QUOTA
from learnloop_operator.training.snapshot import TrainingSnapshot

log = logging.getLogger(__name__)
PROMISED_SECONDS = 60.0
"""How long room is kept for a gang whose pods do not come: something else keeps them, and others may begin."""
SETTLED_SECONDS = 10.0
"""How long room is kept at least: what another run has read of the quotas may be older than the pods."""
KNOWN_SECONDS = 60.0
"""How long an admitted pod is taken for what the next one will be."""
_QUOTA_REFUSES = ("exceeded quota:", "failed quota:")


class RoomReader:
    """Asked only for runs whose pods are not all there: two short lists a pass, and a dry run under a quota."""

    def __init__(self, kube: Reader) -> None:
        self._kube = kube
        self._promised: dict[tuple[str, str], tuple[PodGroup, datetime]] = {}
        self._made: set[tuple[str, str]] = set()
        self._admitted: dict[tuple[str, str], tuple[str, Manifest, datetime]] = {}

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

    async def admitted(self, snapshot: TrainingSnapshot, template: Manifest) -> TrainingSnapshot:
        """The snapshot with a rank as the API server would admit it: sidecars that webhooks inject take room, too.

        Where a quota has no room for even one, the room says so. Where the API server gives no answer, or refuses for
        another reason, the snapshot is as it was: the template is the best guess.

        Args:
            template: core/v1 PodTemplateSpec.
        """
        if snapshot.room is None:
            return snapshot
        key, wanted = (snapshot.namespace, snapshot.name), json.dumps(template, sort_keys=True)
        for other, (_, _, since) in list(self._admitted.items()):
            if (snapshot.now - since).total_seconds() > KNOWN_SECONDS:
                del self._admitted[other]
        known = self._admitted.get(key)
        if known is None or known[0] != wanted:
            metadata = {**template["metadata"], "namespace": snapshot.namespace, "generateName": f"{snapshot.name}-"}
            # The account that a pod gets where it names none; its token is projected, which takes a name.
            spec = {"serviceAccountName": "default", **template["spec"]}
            pod = {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": spec}
            try:
                admitted = await self._kube.admitted(pod)
            except KubeError as error:
                log.debug("no rank of %s/%s would be admitted: %s", *key, error)
                return replace(snapshot, room=replace(snapshot.room, refused=_quota_says(error)))
            known = self._admitted[key] = (wanted, admitted["spec"], snapshot.now)
        return replace(snapshot, admitted_rank=known[1])

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


def _quota_says(error: KubeError) -> str:
    """The sentence of a quota that refuses; "" where something else did."""
    said = str(error)
    if not isinstance(error, Forbidden) or not any(mark in said for mark in _QUOTA_REFUSES):
        return ""
    return f"the API server takes no rank: {said.partition('is forbidden: ')[2] or said}"
