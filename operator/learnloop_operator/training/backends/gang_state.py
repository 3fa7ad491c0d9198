"""Reading what all controllers of gangs say alike: conditions, the attempt, who holds the gang back."""

from collections.abc import Mapping
from typing import Any, Literal

from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest, ObjectRef
from learnloop_operator.training.backends.backend import Backend
from learnloop_operator.training.backends.rank_pods import ANNOTATION_ATTEMPT
from learnloop_operator.training.snapshot import BackendJob

Conditions = Mapping[str, Mapping[str, Any]]
LONGEST = 512
DIGITS = 2
"""Of the number of an attempt, from 0: spec.maxAttempts is at most 100."""


def in_force(manifest: Manifest) -> Conditions:
    """The conditions that are True, by type."""
    found = (manifest.get("status") or {}).get("conditions") or ()
    return {str(item.get("type")): item for item in found if item.get("status") == "True"}


def backend_job(
    backend: Backend,
    manifest: Manifest,
    *,
    succeeded: str,
    workers: int | None,
    queued: bool,
    disruption: str = "",
) -> BackendJob:
    """The gang as decisions see it. An unreadable attempt counts as the first.

    Args:
        succeeded: the type of condition that says that all ranks ended well; `Failed` is everybody's other one.
        queued: somebody holds the gang back: its object is suspended, which is never our doing.
        disruption: the reason of `Failed` that says that a node was taken away; "": the backend tells by its pods only.
    """
    metadata, status, true = manifest["metadata"], manifest.get("status") or {}, in_force(manifest)
    attempt = (metadata.get("annotations") or {}).get(ANNOTATION_ATTEMPT, "0")
    end = true.get("Failed") or true.get(succeeded) or {}
    state: Literal["active", "succeeded", "failed"] = "active"
    if "Failed" in true:
        state = "failed"
    elif succeeded in true:
        state = "succeeded"
    message = str(end.get("message") or "")[:LONGEST]
    created = times.parse(metadata["creationTimestamp"])
    assert created is not None, "the API server always sets it"
    return BackendJob(
        ref=ObjectRef(backend.api_version, backend.kind, metadata["namespace"], metadata["name"]),
        attempt=int(attempt) if str(attempt).isdecimal() and len(attempt) <= DIGITS else 0,
        created=created,
        workers=workers,
        state=state,
        finished=times.parse(status.get("completionTime") or end.get("lastTransitionTime")),
        message=message,
        queued=queued and state == "active",
        heard=bool(status),
        disrupted=message if disruption and state == "failed" and end.get("reason") == disruption else "",
        deleting="deletionTimestamp" in metadata,
    )
