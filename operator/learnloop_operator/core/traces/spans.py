"""Steps of a trace as plain data. Ids derive from an object's UID, so a new leader continues a trace."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from learnloop_common.telemetry import tracing as named
from learnloop_common.telemetry.json_logs import trace_id
from learnloop_operator.core.counted_transitions import agent_of
from learnloop_operator.core.plan import Manifest

Attributes = Mapping[str, str | int | float | bool]
ROOT = "root"
_PIPELINES = {"TrainingJob": "training", "ModelDeployment": "rollout"}


@dataclass(frozen=True, slots=True)
class Link:
    """A trace that this one came from, and why."""

    trace: str
    span: str
    why: str


@dataclass(frozen=True, slots=True)
class SpanEvaluation:
    """A judgement of the subject of a span."""

    name: str
    passed: bool
    why: str
    at: datetime
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """One step that has ended. `parent`: "" for the root of its trace; `failed`: why, or ""."""

    trace: str
    id: str
    name: str
    began: datetime
    ended: datetime
    parent: str = ""
    attributes: Attributes = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    evaluations: tuple[SpanEvaluation, ...] = ()
    failed: str = ""


def span_id(trace: str, *parts: str) -> str:
    """16 hexadecimal digits, always the same for a step of this trace."""
    return hashlib.sha256("/".join((trace, *parts)).encode()).hexdigest()[:16]


def training(body: Mapping[str, Any]) -> str:
    """Trace id of a TrainingJob: one object is one training."""
    return trace_id(str(body["metadata"].get("uid", "")))


def rollout(body: Mapping[str, Any], began: str) -> str:
    """Trace id of a ModelDeployment's rollout; no two begin in the same second."""
    return trace_id(str(body["metadata"].get("uid", "")), began)


def root(trace: str) -> str:
    """Span id of a trace's root."""
    return span_id(trace, ROOT)


def of_object(kind: str, body: Mapping[str, Any]) -> str:
    """Trace id of current work on this object."""
    began = (body.get("status") or {}).get("rolloutStartedAt")
    return rollout(body, began) if kind == "ModelDeployment" and began else training(body)


def about(kind: str, body: Manifest, status: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Attributes of every root."""
    metadata = body["metadata"]
    return {
        named.PIPELINE_NAME: _PIPELINES[kind],
        named.PIPELINE_RUN: str(metadata.get("uid", "")),
        named.NAMESPACE: str(metadata["namespace"]),
        named.AGENT: agent_of(body, status),
        named.OBJECT: f"{kind} {metadata['name']}",
    }


def step(
    trace: str,
    name: str,
    identity: str,
    began: datetime,
    ended: datetime,
    attributes: Attributes,
    failed: str = "",
    evaluations: tuple[SpanEvaluation, ...] = (),
) -> Span:
    """A child of the trace's root. `identity` tells it from the steps around it."""
    return Span(
        trace=trace,
        id=span_id(trace, identity),
        parent=root(trace),
        name=name,
        began=began,
        ended=ended,
        attributes={
            named.TASK_NAME: name,
            named.TASK_RUN: identity,
            **attributes,
            named.TASK_RESULT: named.FAILURE if failed else named.SUCCESS,
        },
        evaluations=evaluations,
        failed=failed,
    )
