"""Ids of traces: derived from an object's UID and a number, so a new leader goes on with them and nothing is stored."""

from collections.abc import Mapping
from typing import Any

from learnloop_common.telemetry.spans import span_id, trace_id

ROOT = "root"


def training(body: Mapping[str, Any]) -> str:
    """Trace id of a TrainingJob: an object is one training."""
    return trace_id(str(body["metadata"].get("uid", "")))


def rollout(body: Mapping[str, Any], began: str) -> str:
    """Trace id of a ModelDeployment's rollout. Its number is the moment it began: no two begin in the same second."""
    return trace_id(str(body["metadata"].get("uid", "")), began)


def root(trace: str) -> str:
    """Span id of a trace's root."""
    return span_id(trace, ROOT)


def of_object(kind: str, body: Mapping[str, Any]) -> str:
    """The trace that what is done for this object now belongs to."""
    began = (body.get("status") or {}).get("rolloutStartedAt")
    return rollout(body, began) if kind == "ModelDeployment" and began else training(body)
