"""Pods as the training decisions see them."""

from collections.abc import Mapping
from typing import Any

from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.training.world import Rank

_PATIENT = ("", "ContainerCreating", "PodInitializing")
_MESSAGE = 512


def rank_of(pod: Manifest, container: str) -> Rank | None:
    """One rank; None for a pod without a usable creation time."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = times.parse(metadata.get("creationTimestamp"))
    if created is None:
        return None
    state = _state(status, container)
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    return Rank(
        name=metadata["name"],
        created=created,
        running=bool(running),
        started=times.parse(running.get("startedAt") or ended.get("startedAt")),
        exit_code=ended.get("exitCode"),
        message=str(ended.get("message") or "").strip()[:_MESSAGE],
        waiting="" if running or ended else waiting(status, state.get("waiting") or {}),
        deleting="deletionTimestamp" in metadata,
    )


def complaint_of(pod: Manifest) -> str | None:
    """What keeps a pod from being ready, in one sentence; None when it runs without having failed."""
    status = pod.get("status") or {}
    for item in status.get("containerStatuses") or ():
        last = (item.get("lastState") or {}).get("terminated") or (item.get("state") or {}).get("terminated") or {}
        if not item.get("ready") and last.get("exitCode"):
            said = str(last.get("message") or "").strip()[-_MESSAGE:]
            return f"pod {pod['metadata']['name']} exited with {last['exitCode']}" + (f": {said}" if said else "")
        held = (item.get("state") or {}).get("waiting") or {}
        if held.get("reason") and held["reason"] not in _PATIENT:
            return f"pod {pod['metadata']['name']} waits: {waiting(status, held)}"
    if status.get("phase") == "Pending" and not status.get("containerStatuses"):
        return f"pod {pod['metadata']['name']} waits: {waiting(status, {})}"
    return None


def waiting(status: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Why a pod does not run yet, in one sentence."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}"[:_MESSAGE]
    reason = str(container.get("reason") or "")
    if reason not in _PATIENT:
        return f"{reason}: {container.get('message', '')}"[:_MESSAGE]
    return reason or "not scheduled yet"


def _state(status: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    for item in status.get("containerStatuses") or ():
        if item.get("name") == container:
            return item.get("state") or {}
    return {}
