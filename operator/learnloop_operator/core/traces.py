"""Traces of trainings and rollouts, computed from two statuses of an object."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from learnloop_common.telemetry import tracing as named
from learnloop_common.telemetry.json_logs import trace_id
from learnloop_operator.core.counted_transitions import agent_of
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.times import parse

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


Status = Mapping[str, Any]
_WAITING = ("Queued", "Starting", "Holding", "Pending")
_STOPPED = ("Restarting", "Suspended")


def ended(body: Manifest, before: Status, after: Status, now: datetime) -> tuple[Span, ...]:
    """Steps that `after` says are over, in the order of their ends; the root is the last one."""
    trace = training(body)
    steps = [_wait(trace, body, after), _attempt(trace, before, after, now), _whole(trace, body, after)]
    return tuple(result for result in steps if result is not None)


def _wait(trace: str, body: Manifest, after: Status) -> Span | None:
    """Span from the job's creation until its first attempt worked."""
    began, ended = parse(body["metadata"].get("creationTimestamp")), parse(after.get("attemptStartedAt"))
    first = after.get("attempts") == 1 and not after.get("preemptions")
    if began is None or ended is None or not first or after.get("phase") in _WAITING:
        return None
    return step(trace, "wait", "wait", began, ended, {})


def _attempt(trace: str, before: Status, after: Status, now: datetime) -> Span | None:
    """An attempt ends when it is on record that it does: before a restart, a suspension, or with the run."""
    text = after.get("attemptStartedAt")
    began, number = parse(text), int(after.get("attempts") or 0)
    if began is None or not number:
        return None
    message: dict[str, str | int] = {named.ATTEMPT: number}
    ready = _condition(after, "Ready")
    finished = parse(after.get("finishedAt"))
    if finished is not None:
        if before.get("phase") in _STOPPED:
            return None  # it was over before
        trained = _condition(after, "Trained").get("status") == "True"
        why = "" if trained else str(ready.get("message", ""))
        return step(trace, "attempt", f"attempt {text}", began, finished, message, why)
    if after.get("phase") not in _STOPPED:
        return None
    stopped = _condition(after, "Suspended")
    if stopped.get("status") == "True":  # free of charge: no failure of the attempt's
        at = parse(stopped.get("lastTransitionTime")) or now
        return step(trace, "attempt", f"attempt {text}", began, at, message) if at >= began else None
    return step(trace, "attempt", f"attempt {text}", began, now, message, str(ready.get("message", "")))


def _whole(trace: str, body: Manifest, after: Status) -> Span | None:
    began, finished = parse(body["metadata"].get("creationTimestamp")), parse(after.get("finishedAt"))
    if finished is None:
        return None
    ready = _condition(after, "Ready")
    trained = _condition(after, "Trained").get("status") == "True"
    passed = ready.get("status") == "True"
    result = named.SUCCESS if passed else named.FAILURE if trained else named.ERROR
    message = about("TrainingJob", body, after) | {named.PIPELINE_RESULT: result}
    spec = body.get("spec") or {}
    message |= {named.ALGORITHM: str(spec.get("algorithm", "")), named.STEPS: int(after.get("step") or 0)}
    if not passed:
        message[named.ERROR_TYPE] = str(ready.get("reason", "Failed"))
    return Span(
        trace=trace,
        id=root(trace),
        name="RUN training",
        began=began or finished,
        ended=finished,
        attributes=message,
        evaluations=tuple(
            SpanEvaluation(str(gate["name"]), bool(gate["passed"]), str(gate.get("message", "")), finished)
            for gate in after.get("gates") or ()
        ),
        failed="" if passed else str(ready.get("message", "")) or "failed",
    )


def cancelled(body: Manifest, now: datetime) -> Span:
    """The root of a training whose object was deleted before its end."""
    trace = training(body)
    began = parse(body["metadata"].get("creationTimestamp")) or now
    message = about("TrainingJob", body, body.get("status") or {}) | {named.PIPELINE_RESULT: named.CANCELLED}
    return Span(trace=trace, id=root(trace), name="RUN training", began=began, ended=now, attributes=message)


def _condition(status: Status, type_: str) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions") or () if item["type"] == type_), {})
