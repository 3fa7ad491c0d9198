"""After 100 %: the old arm stays warm for keepForSeconds and the same checks keep watching the new one."""

from dataclasses import replace

from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.fast_lane import gross_breach
from learnloop_operator.core.rollout.judge import judge_promoted, observed_promoted
from learnloop_operator.core.rollout.move import Move, happened
from learnloop_operator.core.rollout.state import Arm, State
from learnloop_operator.core.rollout.withdraw import swap_back
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.times import seconds_since


def watch(snapshot: Snapshot, state: State, new: Arm, old: Arm) -> Move:
    """One look at a promoted arm. Missing data neither swaps back nor keeps the old arm longer: it was proven."""
    if why := gross_breach(snapshot, state, new.revision, "the promoted arm"):
        return swap_back(snapshot, state, new, old, reasons.GROSS_BREACH, why)
    state = observed_promoted(snapshot, state, new, old)
    verdict = judge_promoted(snapshot, new, old)
    if verdict.breach:
        return swap_back(snapshot, state, new, old, verdict.breach_reason, verdict.breach)
    keep = snapshot.spec.rollout.keep_for_seconds
    left = keep - seconds_since(state.promoted_at, snapshot.now)
    if left <= 0:
        # Nobody is told that it held who could not see it: an arm that was proven keeps nothing warm for that.
        seen = f"was not seen to break a check, {verdict.hold}" if verdict.hold else "held"
        sentence = f"{new.revision} {seen}, for {keep} s after its promotion; the old arm {old.revision} goes"
        after = replace(state, previous=None, reports=())
        return Move(
            after, "Healthy", reasons.GUARD_OVER, sentence, happened(reasons.GUARD_OVER, sentence), again_after=0.0
        )
    said = verdict.hold or verdict.passed
    sentence = f"guarding {new.revision}; the old arm {old.revision} is warm until {keep} s after the promotion; {said}"
    interval = min(left, float(snapshot.spec.analysis.interval_seconds))
    return Move(state, "Guarding", reasons.GUARDING, sentence, again_after=interval, data=verdict.hold)


def revert(state: State, old: Arm) -> Move:
    """The user asks for the previous model while it is still warm: stable a moment ago, it needs no new proof."""
    bad = state.stable.revision if state.stable else "none"
    sentence = f"back to {old.revision} as asked; it was still warm, {bad} goes"
    after = replace(state.without_canary(), stable=old, previous=None, promoted_at=None)
    return Move(after, "Progressing", reasons.REVERTED, sentence, happened(reasons.REVERTED, sentence), again_after=0.0)
