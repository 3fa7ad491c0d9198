"""Ways down: every one of them ends with the arm out of the routing table."""

from dataclasses import replace

from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.core.times import parse, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging.arm_capacity import ready
from learnloop_operator.rollout.model.blocked_models import of_revision, with_pin
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot


def roll_back(snapshot: Snapshot, state: State, canary: ArmState, reason: str, why: str) -> NextState:
    """Roll the canary back and pin its revision."""
    where = f"at {state.weight} %" if state.weight else "before its first episode"
    sentence = f"RolledBack {where}: {why}"
    return blocked(state.without_canary(), pinned(snapshot, canary, reason, sentence), reasons.ROLLED_BACK)


def swap_back(snapshot: Snapshot, state: State, bad: ArmState, good: ArmState, reason: str, why: str) -> NextState:
    """Give the promoted arm's place back to the one that was kept warm, and pin the promoted revision."""
    if ready(snapshot, good.revision) == 0 and snapshot.spec.serving.replicas > 0:
        sentence = f"{why}; the old arm {good.revision} has no ready pod, so {bad.revision} keeps serving until it has"
        return NextState(state, "Degraded", reasons.PODS_NOT_READY, sentence, again_after=1.0, degraded=True, data="")
    sentence = f"RolledBack at 100 % while guarding: {why}"
    after = replace(state.without_canary(), stable=good, previous=None, promoted_at=None)
    return blocked(after, pinned(snapshot, bad, reason, sentence), reasons.SWAPPED_BACK)


def blocked(after: State, pin: BlockedRevision, event: str) -> NextState:
    """The state after a revision was rolled back, told as a warning."""
    return NextState(
        replace(after, pins=with_pin(after.pins, pin)),
        "RolledBack",
        reasons.ROLLED_BACK,
        pin.message,
        happened(event, pin.message, warning=True),
        again_after=1.0,
    )


def drop_canary(state: State, reason: str, sentence: str) -> NextState:
    """Withdraw a canary nobody wants any more; it is not blocked."""
    return NextState(
        state.without_canary(), "Progressing", reason, sentence, happened(reason, sentence), again_after=0.0
    )


def adopt(snapshot: Snapshot, state: State) -> NextState | None:
    """Finish a rollback whose route or routing table was written and whose status was not: both carry its verdict."""
    moves = (_adopted(snapshot, state, pin) for pin in snapshot.routing.verdicts())
    return next((move for move in moves if move), None)


def _adopted(snapshot: Snapshot, state: State, pin: BlockedRevision) -> NextState | None:
    known = of_revision(state.pins, pin.revision)
    if (known and known.at == pin.at) or not _is_of_this_rollout(pin, state):
        return None
    if state.canary and state.canary.revision == pin.revision:
        return blocked(state.without_canary(), pin, reasons.ROLLED_BACK)
    if state.previous and state.stable and state.stable.revision == pin.revision:
        after = replace(state.without_canary(), stable=state.previous, previous=None, promoted_at=None)
        return blocked(after, pin, reasons.SWAPPED_BACK)
    return None


def _is_of_this_rollout(pin: BlockedRevision, state: State) -> bool:
    began, pinned = parse(state.rollout_started_at), parse(pin.at)
    return began is not None and pinned is not None and pinned >= began


def pinned(snapshot: Snapshot, arm: ArmState, reason: str, sentence: str) -> BlockedRevision:
    """What stays on record of an arm that was rolled back."""
    return BlockedRevision(
        revision=arm.revision,
        uri=arm.model.uri,
        sha256=arm.model.sha256,
        reason=reason,
        message=sentence[:1024],
        at=stamp(snapshot.now),
    )
