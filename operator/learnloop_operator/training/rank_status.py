"""Pods as the training decisions see them."""

from collections.abc import Collection, Mapping
from typing import Any

from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_trouble import LONGEST, held_up, last_words, step_of
from learnloop_operator.training.snapshot import Rank


def rank_of(pod: Manifest, containers: Collection[str]) -> Rank | None:
    """One rank, in a container of one of these names; None for a pod without a usable creation time."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = times.parse(metadata.get("creationTimestamp"))
    if created is None:
        return None
    state = _state(status, containers)
    # A failed init container keeps the main one from starting; what the main one itself says is its exit code.
    stuck = held_up(status) or last_words({"initContainerStatuses": status.get("initContainerStatuses")})
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    return Rank(
        name=metadata["name"],
        created=created,
        running=bool(running),
        started=times.parse(running.get("startedAt") or ended.get("startedAt")),
        exit_code=ended.get("exitCode"),
        message=str(ended.get("message") or "").strip()[:LONGEST],
        waiting="" if running or ended else stuck or step_of(status),
        stuck=bool(stuck) and not running and not ended,
        disrupted=_disruption(status),
        deleting="deletionTimestamp" in metadata,
    )


def complaint_of(pod: Manifest) -> str | None:
    """What keeps a pod from being ready, in one sentence; None when it runs without having failed."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    if said := last_words(status):
        return f"pod {name} failed: {said}"
    if held := held_up(status):
        return f"pod {name} waits: {held}"
    running = any("running" in (item.get("state") or {}) for item in status.get("containerStatuses") or ())
    return f"pod {name} waits: {step_of(status)}" if status.get("phase") == "Pending" and not running else None


def _disruption(status: Mapping[str, Any]) -> str:
    """Who takes the pod's node away (core/v1, DisruptionTarget); "" for nobody.

    The kubelet that evicts a pod for what the node lacks says so too, but the pod itself used it up: no excuse.
    """
    if status.get("reason") == "Evicted":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message') or 'no message'}"[:LONGEST]
    return ""


def _state(status: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    for item in status.get("containerStatuses") or ():
        if item.get("name") in names:
            return item.get("state") or {}
    return {}
