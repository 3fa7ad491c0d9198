"""Which objects may be looked at from the cache: those that nothing is under way for."""

from collections.abc import Mapping
from typing import Any

_QUIET = frozenset({"", "Pending", "Healthy", "Suspended"})
"""Phases of a ModelDeployment without a rollout. Any other, known or yet to come, is in motion."""


def at_rest(body: Mapping[str, Any]) -> bool:
    """False while users' traffic or an attempt at training depends on the next decision: then only live reads do."""
    status, spec = body.get("status") or {}, body.get("spec") or {}
    if body["kind"] == "ModelDeployment":
        playing = (status.get("experiment") or {}).get("phase", "Finished") != "Finished"
        moving = status.get("canary") or status.get("previous") or playing
        return not moving and status.get("phase", "") in _QUIET
    if body["kind"] == "TrainingJob":
        return bool(spec.get("suspend") or status.get("finishedAt"))
    return True
