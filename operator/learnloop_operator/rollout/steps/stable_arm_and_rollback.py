"""The stable arm: its first model, the ways back to it, and the guard after 100 %.

Every rollback ends with the arm out of the routing table. An arm that has lost its pods leaves its place to the canary.
"""

from dataclasses import replace
from datetime import timedelta

from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.core.times import parse, seconds_since, stamp
from learnloop_operator.rollout import arm_pods, reasons
from learnloop_operator.rollout.judging import analysis_and_windows, fast_lane_arms, release_gates
from learnloop_operator.rollout.model.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    done,
    happened,
    of_revision,
    past,
    why_blocked,
    with_block,
)
from learnloop_operator.rollout.model.snapshot import Model, Snapshot


def roll_back(snapshot: Snapshot, state: State, canary: ArmState, reason: str, why: str) -> NextState:
    """Roll the canary back and block its revision."""
    where = f"at {state.weight} %" if state.weight else "before its first episode"
    sentence = f"RolledBack {where}: {why}"
    return blocked(state.without_canary(), block_of(snapshot, canary, reason, sentence), reasons.ROLLED_BACK)


def swap_back(snapshot: Snapshot, state: State, bad: ArmState, good: ArmState, reason: str, why: str) -> NextState:
    """Give the promoted arm's place back to the one that was kept warm, and block the promoted revision."""
    if arm_pods.ready(snapshot, good.revision) == 0 and snapshot.spec.serving.replicas > 0:
        sentence = f"{why}; the old arm {good.revision} has no ready pod, so {bad.revision} keeps serving until it has"
        return NextState(state, "Degraded", reasons.PODS_NOT_READY, sentence, (), 1.0, degraded=True, missing=COMPLETE)
    sentence = f"RolledBack at 100 % while guarding: {why}"
    after = replace(state.without_canary(), stable=good, previous=None, promoted_at=None)
    return blocked(after, block_of(snapshot, bad, reason, sentence), reasons.SWAPPED_BACK)


def blocked(after: State, block: BlockedRevision, event: str) -> NextState:
    """The state after a revision was rolled back, told as a warning."""
    return NextState(
        replace(after, blocks=with_block(after.blocks, block)),
        "RolledBack",
        reasons.ROLLED_BACK,
        block.message,
        happened(event, block.message, warning=True),
        again_after=1.0,
    )


def drop_canary(state: State, reason: str, sentence: str) -> NextState:
    """Withdraw a canary that is not wanted any more; it is not blocked."""
    return done(state.without_canary(), "Progressing", reason, sentence)


def adopt(snapshot: Snapshot, state: State) -> NextState | None:
    """Finish a rollback whose route or routing table was written and whose status was not: both carry its verdict."""
    moves = (_adopted(snapshot, state, block) for block in snapshot.routing.verdicts())
    return next((move for move in moves if move), None)


def _adopted(snapshot: Snapshot, state: State, block: BlockedRevision) -> NextState | None:
    recorded = of_revision(state.blocks, block.revision)
    if (recorded and recorded.at == block.at) or not _is_of_this_rollout(block, state):
        return None
    if state.canary and state.canary.revision == block.revision:
        return blocked(state.without_canary(), block, reasons.ROLLED_BACK)
    if state.previous and state.stable and state.stable.revision == block.revision:
        after = replace(state.without_canary(), stable=state.previous, previous=None, promoted_at=None)
        return blocked(after, block, reasons.SWAPPED_BACK)
    return None


def _is_of_this_rollout(block: BlockedRevision, state: State) -> bool:
    began, blocked_at = parse(state.rollout_started_at), parse(block.at)
    return began is not None and blocked_at is not None and blocked_at >= began


def block_of(snapshot: Snapshot, arm: ArmState, reason: str, sentence: str) -> BlockedRevision:
    """The record of a rolled-back arm."""
    return BlockedRevision(
        revision=arm.revision,
        uri=arm.model.uri,
        sha256=arm.model.sha256,
        reason=reason,
        message=sentence[:1024],
        at=stamp(snapshot.now),
    )


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
    if why := fast_lane_arms.gross_breach(snapshot, state, new.revision, "the promoted arm"):
        return swap_back(snapshot, state, new, old, reasons.GROSS_BREACH, why)
    verdict = analysis_and_windows.judge_promoted(snapshot, state, new, old)
    if verdict.breach:
        return swap_back(snapshot, state, new, old, verdict.breach_reason, verdict.breach)
    keep = snapshot.spec.rollout.keep_for_seconds
    left = keep - seconds_since(state.promoted_at, snapshot.now)
    longest = DEADLINES * snapshot.spec.analysis.episode_deadline_seconds
    hangs = analysis_and_windows.promoted_may_hang(snapshot, state, new, old) if -longest < left <= 0 else None
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
    arm = arm_pods.live_arm(snapshot, model.revision)
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
        "Degraded" if arm_pods.hopeless(arm) else "Pending",
        reasons.WAITING_FOR_PODS,
        sentence,
        again_after=arm_pods.look_at_pods(snapshot, model.revision),
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
    arm, rollout = arm_pods.live_arm(snapshot, stable.revision), snapshot.spec.rollout
    words = f": {arm.message}" if arm.message else ""
    given_up = arm_pods.hopeless(arm) or seconds_since(stable.since, snapshot.now) >= rollout.progress_deadline_seconds
    wanted = snapshot.desired.model is not None and snapshot.desired.model.revision == canary.revision
    able = wanted and state.hand is None and arm_pods.ready(snapshot, canary.revision) > 0
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
    arm = arm_pods.live_arm(snapshot, state.stable.revision)
    if arm.ready > 0:
        return None
    text = f": {arm.message}" if arm.message else ""
    sentence = f"the stable arm {state.stable.revision} has no ready pod{text}"
    soon = arm_pods.look_at_pods(snapshot, state.stable.revision)
    return NextState(state, "Degraded", reasons.PODS_NOT_READY, sentence, again_after=soon, degraded=True)
