"""Quota by Kueue: the labels that put a gang in its queue, and the sentences why it waits there."""

from collections.abc import Mapping
from typing import Any

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import KubeObject

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
LONGEST = 512
LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Names the gang that a Workload was made of."""


def queue_labels(spec: TrainingJobSpec) -> dict[str, str]:
    """Labels of the object that runs a gang; none without a queue."""
    queue = spec.queue
    queued = {} if queue is None else {LABEL_QUEUE: queue.name}
    if queue is not None and queue.priority_class is not None:
        queued[LABEL_PRIORITY] = queue.priority_class
    return queued


def queue_sentence(workload: KubeObject | None) -> str:
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
