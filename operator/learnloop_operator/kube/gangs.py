"""The object that runs a TrainingJob's gang, of whichever backend, and its queue's message."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from learnloop_operator.core.manifest_parts import controller_uid
from learnloop_operator.core.plan import Manifest
from learnloop_operator.kube.cached_reads import Reader
from learnloop_operator.kube.errors import KindMissing, KubeError, NotFound
from learnloop_operator.kube.kinds import WORKLOAD, kind_of
from learnloop_operator.kube.object_cache import Object
from learnloop_operator.training.backends import candidates
from learnloop_operator.training.ranks import Backend

LONGEST = 512
LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Names the gang that a Workload was made of."""


def queue_sentence(workload: Manifest | None) -> str:
    """Reason why the gang waits, in Kueue's own words; "" where it has said nothing.

    An admission check (e.g. of a ProvisioningRequest) speaks once the quota is reserved, and may tell when nodes come.
    """
    status = (workload or {}).get("status") or {}
    conditions = {str(item.get("type")): item for item in status.get("conditions") or ()}
    parts = []
    evicted = conditions.get("Evicted") or {}
    if evicted.get("status") == "True":
        parts.append(f"{evicted.get('reason')}: {evicted.get('message')}")
    reserved = conditions.get("QuotaReserved") or {}
    if reserved.get("status") == "True":
        parts += [_check(item) for item in status.get("admissionChecks") or () if item.get("state") != "Ready"]
    elif reserved.get("message"):
        parts.append(str(reserved["message"]))
    again = (status.get("requeueState") or {}).get("requeueAt")
    if again and (conditions.get("Requeued") or {}).get("status") == "False":
        parts.append(f"queued again at {again}")
    return "; ".join(dict.fromkeys(part.strip() for part in parts))[:LONGEST]


def _check(item: Mapping[str, Any]) -> str:
    return f"admission check {item.get('name')} {str(item.get('state')).lower()}: {item.get('message') or 'no message'}"


NO_KUEUE = (
    "spec.queue names LocalQueue {queue}, and this cluster has no Kueue (kind Workload of kueue.x-k8s.io): install it, "
    "and this job starts by itself, or create it again without spec.queue"
)


class Gang(NamedTuple):
    """A TrainingJob's gang, and the backends of the cluster."""

    object: Object | None
    """Live object with apiVersion and kind; None: this TrainingJob has no gang."""
    backend: Backend | None
    installed: frozenset[str]
    """Backends whose kind the API server knows, of those that were asked about: all of them without a gang."""


async def find_gang(kube: Reader, owner: Object, asked: str, recorded: str | None) -> Gang:
    """The gang that `owner`, a live TrainingJob, controls.

    Args:
        asked: spec.backend.
        recorded: status.backend. It is asked about first, and the others only where it has none: an operator that was
            killed between two writes may have begun an attempt on another backend.
    """
    left = candidates(asked)
    first = [backend for backend in left if backend.name == recorded]
    result, previous = await _look(kube, owner, first)
    if result is None:
        result, others = await _look(kube, owner, [backend for backend in left if backend not in first])
        previous |= others
    item, backend = result or (None, None)
    return Gang(item, backend, previous)


Found = tuple[Object, Backend] | None


async def _look(kube: Reader, owner: Object, backends: Sequence[Backend]) -> tuple[Found, frozenset[str]]:
    answers = await asyncio.gather(*(_ask(kube, owner, backend) for backend in backends))
    previous = frozenset(backend.name for backend, (there, _) in zip(backends, answers, strict=True) if there)
    for backend, (_, item) in zip(backends, answers, strict=True):
        if item is not None:
            return (item, backend), previous
    return None, previous


async def _ask(kube: Reader, owner: Object, backend: Backend) -> tuple[bool, Object | None]:
    """Check that the kind exists; return the object of the TrainingJob's name if the TrainingJob owns it."""
    metadata, address = owner["metadata"], {"apiVersion": backend.api_version, "kind": backend.kind}
    try:
        item = await kube.get(kind_of(address), metadata["namespace"], metadata["name"])
    except KindMissing:
        return False, None
    except NotFound:
        return True, None
    return True, {**address, **item} if controller_uid(item) == metadata["uid"] else None


async def queue_missing(kube: Reader, namespace: str, queue: str) -> str:
    """Reason why nothing would hold a gang back that names this LocalQueue; "" where Kueue is there."""
    try:
        await _workloads(kube, namespace, "none")
    except KindMissing:
        return NO_KUEUE.format(queue=queue)
    return ""


async def queue_says(kube: Reader, namespace: str, uid: str) -> str:
    """Message of the Workload of the gang `uid`; "" where there is none. Never raises: a missing sentence stops
    nothing."""
    try:
        result = await _workloads(kube, namespace, uid)
    except KubeError:
        return ""
    return queue_sentence(result[0]) if result else ""


async def _workloads(kube: Reader, namespace: str, uid: str) -> list[Object]:
    return await kube.list(WORKLOAD, namespace, labels=f"{LABEL_JOB_UID}={uid}")
