"""The queue's message about a gang that waits: the Workload that Kueue made of it (kueue.x-k8s.io).

API reference: https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/
"""

from collections.abc import Mapping
from typing import Any

from learnloop_operator.core.plan import Manifest

LONGEST = 512
LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Names the gang that a Workload was made of."""


def sentence(workload: Manifest | None) -> str:
    """Why the gang waits, in Kueue's own words; "" where it has said nothing.

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
