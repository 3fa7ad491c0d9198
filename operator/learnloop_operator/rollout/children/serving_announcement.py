"""Announcements to the data plane: the serving model, rollbacks, decisions and gate verdicts."""

from datetime import timedelta
from hashlib import sha256

from learnloop_api.kinds import base, language_model
from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_api.kinds.rollouts.gates import GatesStatus
from learnloop_api.wire.deployment import (
    AwaitedApproval,
    JudgedGates,
    ModelDeployed,
    RolloutDecision,
    ScheduledStep,
    SuiteVerdict,
)
from learnloop_operator.core import plan, times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.state.rollout_state import NextState, State
from learnloop_operator.rollout.state.snapshot import Model, Snapshot
from learnloop_operator.rollout.steps.waits import waits_since

NEWS_SECONDS = 3600.0
"""A new leader tells of every rollback within this time. The data plane keeps each once."""


def announcements(snapshot: Snapshot, move: NextState) -> tuple[plan.Announcement, ...]:
    """Recent events: the serving model, the newest rollback, decisions, and the approval it waits for."""
    state, sentence = move.state, move.sentence
    message = (*_serving(snapshot, state, sentence), *_rolled_back(snapshot, state), *_decided(snapshot, state))
    return (*message, *_awaited(snapshot, move))


def _awaited(snapshot: Snapshot, move: NextState) -> tuple[plan.Announcement, ...]:
    """Only of rollouts that ask for approvals. That none is awaited is announced once by each process: a dead
    leader may have owed it."""
    gates, steps = snapshot.spec.gates, snapshot.spec.rollout.steps
    if not any(step.pause for step in steps) and (gates is None or gates.approval is None):
        return ()
    path, state = f"/api/v1/models/{snapshot.name}/awaited-approval", move.state
    at_gates = state.gates is not None and state.gates.phase == "AwaitingApproval"
    revision = state.canary.revision if state.canary else state.gates.revision if state.gates and at_gates else None
    if move.reason not in (reasons.WAITING_FOR_APPROVAL, reasons.APPROVAL_OVERDUE) or revision is None:
        return (plan.Announcement(plan.Call("DELETE", path), "none awaited"),)
    since, until, otherwise = waits_since(snapshot, state), None, "hold"
    limit = gates.approval.within if at_gates and gates and gates.approval else None
    if at_gates:
        since, otherwise = times.parse(state.gates.judged_at if state.gates else None) or since, "roll_back"
    elif state.step is not None and (wanted := steps[state.step].approval) is not None:
        limit, otherwise = wanted.within, "roll_back" if wanted.otherwise == "rollBack" else "hold"
    until = times.stamp(since + timedelta(seconds=base.seconds_of(limit))) if limit else None
    step = None if at_gates or state.step is None else state.step + 1
    event = AwaitedApproval.model_validate(
        {
            "model_deployment": snapshot.name,
            "revision": revision,
            "step": step,
            "since": times.stamp(since),
            "until": until,
            "otherwise": otherwise,
            "message": move.sentence[:1024],
        }
    )
    identity = f"{event.revision} {step} {times.stamp(since)}"
    return (plan.Announcement(plan.Call("PUT", path, event.model_dump(mode="json")), identity),)


def _decided(snapshot: Snapshot, state: State) -> tuple[plan.Announcement, ...]:
    """Each decision under its own fixed identity: the data plane keeps it once, however often it is announced."""
    message = []
    for item in state.decisions:
        if times.parse(item.at) is None or times.seconds_since(item.at, snapshot.now) > NEWS_SECONDS:
            continue
        fields = item.model_dump(exclude={"value"}) | {"verified": bool(item.verified)}
        body = RolloutDecision(model_deployment=snapshot.name, **fields).model_dump(mode="json")
        uid = str(snapshot.object["metadata"].get("uid", ""))
        identity = sha256("\n".join((uid, item.verb, item.value, item.at)).encode()).hexdigest()[:32]
        path = f"/api/v1/models/{snapshot.name}/decisions/{identity}"
        message.append(plan.Announcement(plan.Call("PUT", path, body), identity))
    return tuple(message)


def _serving(snapshot: Snapshot, state: State, sentence: str) -> tuple[plan.Announcement, ...]:
    """Nothing while nothing serves. The moment is that of this look: each revision is announced once."""
    if state.stable is None:
        return ()
    model, old = state.stable.model, state.previous
    gates = state.gates if state.gates and state.gates.revision == model.revision else None
    event = _event(snapshot, "deployed", model, old.revision if old else None, sentence, times.stamp(snapshot.now))
    approved = gates.approved_by if gates else None
    event = event.model_copy(update={"gates": _verdicts(gates) if gates else [], "approved_by": approved})
    return (_announcement(event, model.revision),)


def _rolled_back(snapshot: Snapshot, state: State) -> tuple[plan.Announcement, ...]:
    block = state.blocked
    if block is None or times.parse(block.at) is None or times.seconds_since(block.at, snapshot.now) > NEWS_SECONDS:
        return ()
    instead = state.stable.revision if state.stable else None
    event = _event(snapshot, "rolled_back", block, instead, block.message, block.at)
    return (_announcement(event.model_copy(update={"reason": block.reason}), f"{block.revision} at {block.at}"),)


def _event(
    snapshot: Snapshot, event: str, model: Model | BlockedRevision, previous: str | None, verdict: str, at: str
) -> ModelDeployed:
    spec, steps = snapshot.spec, snapshot.spec.rollout.steps[:32]
    server = (spec.serving.language or language_model.LanguageServing()).server.kind
    fields = {
        "event": event,
        "model_deployment": snapshot.name,
        "revision": model.revision,
        "uri": model.uri,
        "sha256": model.sha256 or None,
        "previous_revision": previous,
        "routing_mode": spec.routing.mode,
        "platform": server if spec.language_model else "learnloop-policy-server",
        "canary_weights": [step.weight for step in steps],
        "schedule": [
            ScheduledStep(
                weight=step.weight,
                min_seconds=step.min_seconds,
                min_episodes=step.min_episodes,
                waits_for_approval=step.pause,
            )
            for step in steps
        ],
        "verdict": verdict[:1024],
        "deployed_at": at,
    }
    return ModelDeployed.model_validate(fields)


def _announcement(event: ModelDeployed, identity: str) -> plan.Announcement:
    path = f"/api/v1/models/{event.model_deployment}/{event.event.replace('_', '-')}"
    return plan.Announcement(plan.Call("PUT", path, event.model_dump(mode="json")), identity)


def verdict_calls(snapshot: Snapshot, before: State, after: State) -> tuple[plan.Call, ...]:
    """The call that puts the end of a candidate's gates into the audit chain; none while they are being judged."""
    result, recorded = after.gates, before.gates
    if result is None or result.phase not in ("Passed", "Failed"):
        return ()
    if recorded and (recorded.revision, recorded.started_at, recorded.phase) == (
        result.revision,
        result.started_at,
        result.phase,
    ):
        return ()
    body = JudgedGates(
        model_deployment=snapshot.name,
        revision=result.revision,
        started_at=result.started_at,
        passed=result.phase == "Passed",
        verdicts=_verdicts(result),
        approved_by=result.approved_by,
        message=result.message or "",
    )
    path = f"/api/v1/models/{snapshot.name}/gates/{result.revision}/verdict"
    return (plan.Call("PUT", path, body.model_dump(mode="json")),)


def _verdicts(gates: GatesStatus) -> list[SuiteVerdict]:
    return [
        SuiteVerdict.model_validate(
            {
                **item.model_dump(include={"verdict", "samples", "failures", "bound", "limit"}),
                "suite": item.name,
                "report_sha256": item.report,
                "message": item.message or "",
            }
        )
        for item in gates.suites
        if item.verdict != "pending"
    ]
