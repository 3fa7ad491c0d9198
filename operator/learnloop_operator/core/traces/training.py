"""The trace of a TrainingJob: it waits, its attempts, and the whole."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from learnloop_common.telemetry import tracing as named
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.times import parse
from learnloop_operator.core.traces import spans as ids
from learnloop_operator.core.traces.spans import Span, SpanEvaluation, about, step

Status = Mapping[str, Any]
_WAITING = ("Queued", "Starting", "Holding", "Pending")
_STOPPED = ("Restarting", "Suspended")


def ended(body: Manifest, before: Status, after: Status, now: datetime) -> tuple[Span, ...]:
    """Steps that `after` says are over, in the order of their ends; the root is the last one."""
    trace = ids.training(body)
    steps = [_wait(trace, body, after), _attempt(trace, before, after, now), _whole(trace, body, after)]
    return tuple(result for result in steps if result is not None)


def _wait(trace: str, body: Manifest, after: Status) -> Span | None:
    """From the job's creation until its first attempt worked."""
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
        id=ids.root(trace),
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
    trace = ids.training(body)
    began = parse(body["metadata"].get("creationTimestamp")) or now
    message = about("TrainingJob", body, body.get("status") or {}) | {named.PIPELINE_RESULT: named.CANCELLED}
    return Span(trace=trace, id=ids.root(trace), name="RUN training", began=began, ended=now, attributes=message)


def _condition(status: Status, type_: str) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions") or () if item["type"] == type_), {})
