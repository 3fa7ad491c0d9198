"""Trace ids of trainings and rollouts, derived from the object: log lines and spans of every leader share them."""

from collections.abc import Mapping
from typing import Any

from learnloop_common.telemetry.json_logs import trace_id

Status = Mapping[str, Any]


def of_object(kind: str, body: Mapping[str, Any]) -> str:
    """Trace id (32 hexadecimal digits) of the current work on this object: its training, or its newest rollout."""
    uid = str(body["metadata"].get("uid", ""))
    began = (body.get("status") or {}).get("rolloutStartedAt")
    return trace_id(uid, began) if kind == "ModelDeployment" and began else trace_id(uid)


def under_way(status: Status) -> bool:
    gates, experiment = status.get("gates") or {}, status.get("experiment") or {}
    at_gates = not status.get("stable") and gates.get("phase") in ("Running", "AwaitingApproval")
    tried = experiment.get("phase") in ("Starting", "Running")
    return bool(status.get("canary") or status.get("previous") or at_gates or tried)
