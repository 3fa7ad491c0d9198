"""Whether an object is at rest or on trial."""

from collections.abc import Mapping
from typing import Any

_QUIET = frozenset({"", "Pending", "Healthy", "Suspended"})
"""Phases of a ModelDeployment without a rollout. Any other, known or yet to come, is in motion."""


def at_rest(body: Mapping[str, Any]) -> bool:
    """False while users' traffic or an attempt at training depends on the next decision: then only live reads do."""
    status, spec = body.get("status") or {}, body.get("spec") or {}
    if body["kind"] == "ModelDeployment":
        return not on_trial(body) and status.get("phase", "") in _QUIET
    if body["kind"] == "TrainingJob":
        return bool(spec.get("suspend") or status.get("finishedAt"))
    return True


def on_trial(body: Mapping[str, Any]) -> bool:
    """By its status users meet an arm of it that is not proven yet, or may have to go back to the one before."""
    status = body.get("status") or {}
    playing = (status.get("experiment") or {}).get("phase", "Finished") != "Finished"
    return bool(status.get("canary") or status.get("previous") or playing)
