"""The trace of a rollout: its pods start, its gates, its steps, its guard, and the whole.

The root is read from the status alone, which keeps when a rollout began and how it ended: whichever leader comes next
sends it. A step needs the status before the pass too, for the one after it lacks its beginning.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from learnloop_api.kinds.rollouts.rollout_steps import Rollout
from learnloop_common.telemetry import tracing as named
from learnloop_operator.core import traces as ids
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.times import parse
from learnloop_operator.core.traces import Attributes, Link, Span, SpanEvaluation, about, step

Status = Mapping[str, Any]


def ended(body: Manifest, before: Status, after: Status, now: datetime) -> tuple[Span, ...]:
    """Steps that are over, in the order of their ends; a root comes after all steps of its rollout."""
    was, began = before.get("rolloutStartedAt"), after.get("rolloutStartedAt")
    spans: list[Span] = []
    if was and was != began and under_way(before):
        # Another rollout took its place within one pass.
        next_began = parse(began) or now
        spans += [*_steps(body, was, before, {}, next_began), _cancelled(body, was, before, next_began)]
    if began:
        spans += _steps(body, began, before if was == began else {}, after, now)
        whole = _whole(body, began, after, now)
        spans += [whole] if whole is not None else []
    return tuple(spans)


def under_way(status: Status) -> bool:
    """True while a rollout runs."""
    gates = status.get("gates") or {}
    trial = status.get("experiment") or {}
    at_gates = not status.get("stable") and gates.get("phase") in ("Running", "AwaitingApproval")
    return bool(
        status.get("canary") or status.get("previous") or at_gates or trial.get("phase") in ("Starting", "Running")
    )


def cancelled(body: Manifest, now: datetime) -> Span | None:
    """The root of a rollout whose object was deleted before its end; None where none was under way."""
    status = body.get("status") or {}
    began = status.get("rolloutStartedAt")
    return _cancelled(body, began, status, now) if began and under_way(status) else None


def model_of(status: Status) -> str:
    """Digest of the model that the rollout is or was about: what links it to the training that made it; or ""."""
    arm = status.get("canary") or status.get("stable") or {}
    pins = status.get("blockedRevisions") or ()
    if not status.get("canary") and not _promoted(status) and pins:
        arm = pins[-1]
    return str(arm.get("sha256") or "")


def linked(span: Span, job: Manifest) -> tuple[Link, ...]:
    """To the training that made the model; none on steps."""
    if span.parent:
        return ()
    trace = ids.training(job)
    return (Link(trace, ids.root(trace), "training"),)


def _steps(body: Manifest, began: str, before: Status, after: Status, now: datetime) -> list[Span]:
    trace, start = ids.rollout(body, began), parse(began) or now
    spans = []
    first = parse(after.get("stepStartedAt"))
    if after.get("step") == 0 and first is not None and before.get("step") is None:
        spans.append(step(trace, "pods", "pods", start, first, {}))
    gates = after.get("gates") or {}
    judged, opened = parse(gates.get("judgedAt")), parse(gates.get("startedAt"))
    if judged is not None and opened is not None and opened >= start:
        spans.append(_gates(trace, gates, opened, judged))
    at = before.get("stepStartedAt")
    if (
        before.get("step") is not None
        and at
        and (before["step"], at) != (after.get("step"), after.get("stepStartedAt"))
    ):
        over = parse(after.get("stepStartedAt")) or _ended_at(after, start, now)
        message = {named.WEIGHT: int(before.get("weight") or 0)}
        name, identity = f"step {before['step'] + 1}", f"step {before['step']} {at}"
        pin = _pin(after, start)
        fell = str(pin["message"]) if pin and not after.get("canary") and not _promoted(after) else ""
        spans.append(step(trace, name, identity, parse(at) or over, over, message, fell))
    return [*spans, *_guard(body, trace, start, before, after, now)]


def _guard(body: Manifest, trace: str, start: datetime, before: Status, after: Status, now: datetime) -> list[Span]:
    promoted, swapped = parse(after.get("promotedAt")), parse(before.get("promotedAt"))
    if promoted is not None and promoted >= start and not under_way(after):
        return [step(trace, "guard", "guard", promoted, _guard_end(body, promoted, now), {})]
    pin = _pin(after, start)
    if promoted is None and swapped is not None and swapped >= start and pin is not None:
        return [step(trace, "guard", "guard", swapped, parse(pin["at"]) or now, {}, str(pin["message"]))]
    return []


def _whole(body: Manifest, began: str, after: Status, now: datetime) -> Span | None:
    if under_way(after):
        return None
    trace, start = ids.rollout(body, began), parse(began) or now
    pin = _pin(after, start)
    promoted = parse(after.get("promotedAt"))
    message = about("ModelDeployment", body, after)
    message[named.PIPELINE_RUN] = f"{message[named.PIPELINE_RUN]}/{began}"
    stable = after.get("stable") or {}
    if promoted is not None and promoted >= start:
        message |= {named.PIPELINE_RESULT: named.SUCCESS, named.REVISION: str(stable.get("revision", ""))}
        return _root(trace, start, _guard_end(body, promoted, now), message)
    if pin is not None:
        reason, why = str(pin["reason"]), str(pin["message"])
        message |= {
            named.PIPELINE_RESULT: named.FAILURE,
            named.ERROR_TYPE: reason,
            named.REVISION: str(pin["revision"]),
        }
        at = parse(pin["at"]) or now
        return _root(trace, start, at, message, why, (SpanEvaluation(reason, False, why, at),))
    first = parse(stable.get("since"))
    if (after.get("gates") or {}).get("revision") == stable.get("revision") and first is not None and first >= start:
        message |= {named.PIPELINE_RESULT: named.SUCCESS, named.REVISION: str(stable.get("revision", ""))}
        return _root(trace, start, first, message)
    message[named.PIPELINE_RESULT] = named.CANCELLED
    return _root(trace, start, _ended_at(after, start, now), message)


def _cancelled(body: Manifest, began: str, status: Status, now: datetime) -> Span:
    message = about("ModelDeployment", body, status) | {named.PIPELINE_RESULT: named.CANCELLED}
    message[named.PIPELINE_RUN] = f"{message[named.PIPELINE_RUN]}/{began}"
    return _root(ids.rollout(body, began), parse(began) or now, now, message)


def _root(
    trace: str,
    began: datetime,
    ended: datetime,
    message: Attributes,
    failed: str = "",
    evaluations: tuple[SpanEvaluation, ...] = (),
) -> Span:
    return Span(
        trace=trace,
        id=ids.root(trace),
        name="RUN rollout",
        began=began,
        ended=ended,
        attributes=message,
        evaluations=evaluations,
        failed=failed,
    )


def _gates(trace: str, gates: Status, opened: datetime, judged: datetime) -> Span:
    message = tuple(
        SpanEvaluation(
            str(item["name"]), item["verdict"] == "passed", str(item.get("message") or ""), judged, item.get("bound")
        )
        for item in gates.get("suites") or ()
        if item.get("verdict") != "pending"
    )
    shut = gates.get("phase") == "Failed"
    why = str(gates.get("message") or "the gates have not let it pass") if shut else ""
    about_it = {named.REVISION: str(gates.get("revision", ""))}
    return step(trace, "gates", f"gates {gates['startedAt']}", opened, judged, about_it, why, message)


def _pin(status: Status, start: datetime) -> Mapping[str, Any] | None:
    """The rollback of this rollout's model; None where it was not rolled back."""
    pins: Sequence[Mapping[str, Any]] = status.get("blockedRevisions") or []
    at = parse(pins[-1]["at"]) if pins else None
    return pins[-1] if at is not None and at >= start else None


def _promoted(status: Status) -> bool:
    began, promoted = parse(status.get("rolloutStartedAt")), parse(status.get("promotedAt"))
    return began is not None and promoted is not None and promoted >= began


def _ended_at(status: Status, start: datetime, now: datetime) -> datetime:
    """Time when the last step of a finished rollout ended."""
    pin, promoted = _pin(status, start), parse(status.get("promotedAt"))
    if promoted is not None and promoted >= start:
        return promoted
    if pin is not None:
        return parse(pin["at"]) or now
    for item in status.get("conditions") or ():
        if item["type"] == "Progressing" and item["status"] == "False":
            moment = parse(item["lastTransitionTime"])
            return moment if moment is not None and moment >= start else now
    return now


def _guard_end(body: Manifest, promoted: datetime, now: datetime) -> datetime:
    left_out = Rollout.model_fields["keep_for_seconds"].default
    keep = ((body.get("spec") or {}).get("rollout") or {}).get("keepForSeconds", left_out)
    return min(now, promoted + timedelta(seconds=float(keep)))
