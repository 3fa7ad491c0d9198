"""Rollback of a canary, or of the arm that was promoted: out of the routing table, blocked, and one sentence why."""

from dataclasses import replace

from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.core.times import parse, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.state.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    done,
    happened,
    of_revision,
    with_block,
)
from learnloop_operator.rollout.state.snapshot import Snapshot


def roll_back(snapshot: Snapshot, state: State, canary: ArmState, reason: str, why: str) -> NextState:
    """Roll the canary back and block its revision."""
    where = f"at {state.weight} %" if state.weight else "before its first episode"
    sentence = f"RolledBack {where}: {why}"
    return blocked(state.without_canary(), block_of(snapshot, canary, reason, sentence), reasons.ROLLED_BACK)


def swap_back(snapshot: Snapshot, state: State, bad: ArmState, good: ArmState, reason: str, why: str) -> NextState:
    """Give the promoted arm's place back to the one that was kept warm, and block the promoted revision."""
    if snapshot.arm(good.revision).ready == 0 and snapshot.spec.serving.replicas > 0:
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
