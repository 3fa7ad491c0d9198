"""The stable arm: its first model, the guard after 100 %, and the loss of its pods.

An arm that has lost its pods leaves its place to the canary.
"""

from dataclasses import replace
from datetime import timedelta

from learnloop_operator.core.times import parse, seconds_since, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging import judgement, release_gates, watched_arms
from learnloop_operator.rollout.state.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    done,
    happened,
    past,
    why_blocked,
)
from learnloop_operator.rollout.state.snapshot import Model, Snapshot
from learnloop_operator.rollout.steps.rollback import block_of, blocked, swap_back

# After 100 %: the old arm stays warm for keepForSeconds and the same checks keep watching the new one.
#
# A model that is asked for meanwhile waits. If it began immediately, the proven arm would go before the new stable has
# shown what it is worth. The next canary would then be measured by an unproven arm.
#
# Episodes that were opened since the promotion are overdue after a deadline, so a guard as short as that
# would never see that they hang. It lasts until they have ended, or are overdue and the checks decide.


DEADLINES = 2
"""As many deadlines at most a guard lasts longer: after one all that hangs begins to be overdue."""


def guard(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> NextState:
    """One look at a promoted arm. Missing data neither swaps back nor keeps the old arm longer: it was proven."""
    onward, upcoming = _guarded(snapshot, state, new, old), next_model(snapshot, state)
    if onward.phase != "Degraded" or upcoming is None:
        return onward
    # There is nothing to roll it back to yet, however long that lasts: a person may know that the next one mends it.
    return replace(onward, sentence=f"{onward.sentence}; {_awaits(snapshot, upcoming, old)}")


def _guarded(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> NextState:
    if why := watched_arms.gross_breach(snapshot, state, new.revision, "the promoted arm"):
        return swap_back(snapshot, state, new, old, reasons.GROSS_BREACH, why)
    verdict = judgement.judge_promoted(snapshot, state, new, old)
    if verdict.breach:
        return swap_back(snapshot, state, new, old, verdict.breach_reason, verdict.breach)
    keep = snapshot.spec.rollout.keep_for_seconds
    left = keep - seconds_since(state.promoted_at, snapshot.now)
    longest = DEADLINES * snapshot.spec.analysis.episode_deadline_seconds
    hangs = judgement.promoted_may_hang(snapshot, state, new, old) if -longest < left <= 0 else None
    if left <= 0 and not hangs:
        # An unseen guard does not claim that the model held: an arm that was proven keeps nothing warm for that.
        sentence = f"{new.revision} held for {keep} s after its promotion; the old arm {old.revision} is removed"
        if verdict.hold:
            sentence = f"the guard of {new.revision} is over and saw no breach, but too little to say that it held: "
            sentence += f"{verdict.hold}; the old arm {old.revision} is removed"
        after = replace(state, previous=None)
        # That all went as the promotion said is in the status, and no event; that no look was possible is one.
        events = happened(reasons.GUARD_OVER, sentence, warning=True) if verdict.hold else ()
        phase = "Progressing" if next_model(snapshot, state) else "Healthy"
        return NextState(after, phase, reasons.GUARD_OVER, sentence, events, again_after=0.0)
    text = hangs or verdict.hold or verdict.passed
    upcoming = next_model(snapshot, state)
    decided = "its open episodes have ended or are overdue"
    ends = decided if hangs else f"{keep} s after the promotion"
    sentence = f"guarding {new.revision}; the old arm {old.revision} is warm until {ends}; {text}"
    if upcoming:
        ends = decided if hangs else _end(state, keep)
        sentence = f"guarding {new.revision} until {ends}; {_awaits(snapshot, upcoming, old)}; {text}"
    reason = reasons.WAITING_FOR_GUARD if upcoming else reasons.GUARDING
    interval = float(snapshot.spec.analysis.interval_seconds)
    interval = interval if hangs else min(left, interval)
    return NextState(state, "Guarding", reason, sentence, again_after=interval, missing=verdict.hold)


def next_model(snapshot: Snapshot, state: State) -> Model | None:
    """The model that begins as a canary when the guard is over; None without a guard or a new model."""
    model = snapshot.desired.model
    if model is None or state.previous is None or state.canary or state.stable is None:
        return None
    return None if state.in_the_way(model) or model.revision == state.stable.revision else model


def ended(snapshot: Snapshot, state: State, new: ArmState, old: ArmState, by: str) -> NextState | str:
    """A person lets the waiting model begin now. Not where the promoted arm is to be rolled back: then why it is.

    Where the old arm has no pod to roll it back to, the waiting model may be what mends it, and begins.
    """
    onward = guard(snapshot, state, new, old)
    if onward.phase == "RolledBack":
        return f"a check is breached: {onward.sentence}"
    sentence = (
        f"the guard of {new.revision} was ended by {by}, {seconds_since(state.promoted_at, snapshot.now):.0f} of its "
        f"{snapshot.spec.rollout.keep_for_seconds} s after the promotion; the old arm {old.revision} is removed"
    )
    return done(replace(state, previous=None), "Progressing", reasons.GUARD_OVER, sentence, warning=True)


def revert(state: State, old: ArmState) -> NextState:
    """The user asks for the previous model while it is still warm: stable a moment ago, it needs no new proof."""
    bad = state.stable.revision if state.stable else "none"
    sentence = f"back to {old.revision} as asked; it was still warm, {bad} is removed"
    after = replace(state.without_canary(), stable=old, previous=None, promoted_at=None)
    return done(after, "Progressing", reasons.REVERTED, sentence)


def _end(state: State, keep: int) -> str:
    promoted = parse(state.promoted_at)
    return stamp(promoted + timedelta(seconds=keep)) if promoted else f"{keep} s after its promotion"


def _awaits(snapshot: Snapshot, model: Model, old: ArmState) -> str:
    if model.revision == old.revision:
        return f"{model.revision} is wanted again and serves as soon as one of its pods is ready"
    return f"{model.revision} waits (`kubectl learnloop skip {snapshot.name}` starts it), {old.revision} is kept"


def serve_first_model(snapshot: Snapshot, state: State) -> NextState | None:
    """Nothing serves yet, so there is nothing to compare with: the first model serves as soon as it can, and as its
    gates have let it."""
    if state.stable is not None:
        return None
    model = snapshot.desired.model
    if model is None:
        return NextState(state, "Pending", reasons.MODEL_UNRESOLVED, snapshot.desired.problem, again_after=30.0)
    block = state.in_the_way(model)
    if block:
        sentence = f"{why_blocked(block, model)}; nothing serves until a new model, or a retry"
        return NextState(state, "RolledBack", reasons.BLOCKED, sentence)
    arm = snapshot.arm(model.revision)
    if arm.ready > 0 and release_gates.closed(snapshot, state, model.revision):
        return _first_at_gates(snapshot, state, model)
    if arm.ready > 0 or (snapshot.spec.serving.replicas == 0 and arm.pod is not None):
        sentence = f"{model.revision} is the first model and serves every episode"
        first = ArmState(model, stamp(snapshot.now), was_ready=arm.ready > 0)
        return done(replace(state, stable=first), "Healthy", reasons.FIRST_MODEL, sentence)
    text = f": {arm.message}" if arm.message else ""
    sentence = f"waiting for the pods of the first model {model.revision}{text}"
    return NextState(
        state,
        "Degraded" if arm.hopeless else "Pending",
        reasons.WAITING_FOR_PODS,
        sentence,
        again_after=snapshot.look_at_pods(model.revision),
        degraded=bool(arm.message),
    )


def _first_at_gates(snapshot: Snapshot, state: State, model: Model) -> NextState:
    """The first model serves no traffic until it has passed its gates."""
    candidate = ArmState(model, stamp(snapshot.now), was_ready=True)
    if state.gates is None or state.gates.revision != model.revision:
        state = replace(state, rollout_started_at=stamp(snapshot.now))
    gated = release_gates.pass_gates(snapshot, state, candidate)
    assert gated is not None, "closed gates are there"
    if gated.phase != "RolledBack":
        return gated
    block = block_of(snapshot, candidate, reasons.GATE_FAILED, f"RolledBack before its first episode: {gated.sentence}")
    back = blocked(gated.state, block, reasons.ROLLED_BACK)
    return replace(back, events=(*gated.events, *back.events))


def serve_by_canary_when_stable_is_lost(
    snapshot: Snapshot, state: State, stable: ArmState, canary: ArmState, onward: NextState
) -> NextState:
    """Most users are refused, and nothing can be compared. When stable's pods have been given up, as a canary's are
    (canary_steps.py), the canary serves as a first model does: when it has pods and has passed its gates."""
    arm, rollout = snapshot.arm(stable.revision), snapshot.spec.rollout
    words = f": {arm.message}" if arm.message else ""
    given_up = arm.hopeless or seconds_since(stable.since, snapshot.now) >= rollout.progress_deadline_seconds
    wanted = snapshot.desired.model is not None and snapshot.desired.model.revision == canary.revision
    able = wanted and state.standing_order is None and snapshot.arm(canary.revision).ready > 0
    if (
        onward.phase == "RolledBack"
        or release_gates.closed(snapshot, state, canary.revision)
        or not (given_up and able)
    ):
        text = f"{onward.sentence}; the stable arm {stable.revision} has no ready pod{words}"
        return replace(onward, sentence=text, degraded=True)
    sentence = f"{canary.revision} serves every episode: the stable arm {stable.revision} has lost its pods{words}"
    after = replace(state.without_canary(), stable=canary, last_stable=past(stable))
    return done(after, "Healthy", reasons.STABLE_LOST, sentence, warning=True, keep_table=True, missing=COMPLETE)


def await_stable_pods(snapshot: Snapshot, state: State) -> NextState | None:
    """The stable arm has no pod that can serve."""
    if state.stable is None or snapshot.spec.serving.replicas == 0:
        return None
    arm = snapshot.arm(state.stable.revision)
    if arm.ready > 0:
        return None
    text = f": {arm.message}" if arm.message else ""
    sentence = f"the stable arm {state.stable.revision} has no ready pod{text}"
    soon = snapshot.look_at_pods(state.stable.revision)
    return NextState(state, "Degraded", reasons.PODS_NOT_READY, sentence, again_after=soon, degraded=True)
