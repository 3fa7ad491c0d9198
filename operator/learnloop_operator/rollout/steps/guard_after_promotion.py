"""After 100 %: the old arm stays warm for keepForSeconds and the same checks keep watching the new one.

A model that is asked for meanwhile waits. If it began at once, the proven arm would go before the new stable has shown
what it is worth. The next canary would then be measured by an unproven arm.
"""

from dataclasses import replace
from datetime import timedelta

from learnloop_operator.core.times import parse, seconds_since, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging.analysis import judge_promoted, observed_promoted
from learnloop_operator.rollout.judging.fast_lane_breaches import gross_breach
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Model, Snapshot
from learnloop_operator.rollout.steps.rollback import swap_back


def watch(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> NextState:
    """One look at a promoted arm. Missing data neither swaps back nor keeps the old arm longer: it was proven."""
    onward, next_one = _watch(snapshot, state, new, old), waiting(snapshot, state)
    if onward.phase != "Degraded" or next_one is None:
        return onward
    # There is nothing to roll it back to yet, however long that lasts: a person may know that the next one mends it.
    return replace(onward, sentence=f"{onward.sentence}; {_awaits(snapshot, next_one, old)}")


def _watch(snapshot: Snapshot, state: State, new: ArmState, old: ArmState) -> NextState:
    if why := gross_breach(snapshot, state, new.revision, "the promoted arm"):
        return swap_back(snapshot, state, new, old, reasons.GROSS_BREACH, why)
    state = observed_promoted(snapshot, state, new, old)
    verdict = judge_promoted(snapshot, state, new, old)
    if verdict.breach:
        return swap_back(snapshot, state, new, old, verdict.breach_reason, verdict.breach)
    keep = snapshot.spec.rollout.keep_for_seconds
    left = keep - seconds_since(state.promoted_at, snapshot.now)
    if left <= 0:
        # Nobody is told that it held who could not see it: an arm that was proven keeps nothing warm for that.
        seen = f"was not seen to break a check, {verdict.hold}" if verdict.hold else "held"
        sentence = f"{new.revision} {seen}, for {keep} s after its promotion; the old arm {old.revision} goes"
        after = replace(state, previous=None, reports=())
        # That all went as the promotion said is in the status, and no event; that nobody could look is one.
        told = happened(reasons.GUARD_OVER, sentence, warning=True) if verdict.hold else ()
        phase = "Progressing" if waiting(snapshot, state) else "Healthy"
        return NextState(after, phase, reasons.GUARD_OVER, sentence, told, again_after=0.0)
    said = verdict.hold or verdict.passed
    next_one = waiting(snapshot, state)
    sentence = f"guarding {new.revision}; the old arm {old.revision} is warm until {keep} s after the promotion; {said}"
    if next_one:
        sentence = f"guarding {new.revision} until {_end(state, keep)}; {_awaits(snapshot, next_one, old)}; {said}"
    reason = reasons.WAITING_FOR_GUARD if next_one else reasons.GUARDING
    interval = min(left, float(snapshot.spec.analysis.interval_seconds))
    return NextState(state, "Guarding", reason, sentence, again_after=interval, data=verdict.hold)


def waiting(snapshot: Snapshot, state: State) -> Model | None:
    """The model that begins as a canary when the guard is over; None where there is no guard or nothing new."""
    model = snapshot.desired.model
    if model is None or state.previous is None or state.canary or state.stable is None:
        return None
    return None if state.in_the_way(model) or model.revision == state.stable.revision else model


def ended(snapshot: Snapshot, state: State, new: ArmState, old: ArmState, by: str) -> NextState | str:
    """A person lets the waiting model begin now. Not where the promoted arm is to be rolled back: then why it is.

    Where the old arm has no pod to roll it back to, the waiting model may be what mends it, and begins.
    """
    onward = watch(snapshot, state, new, old)
    if onward.phase == "RolledBack":
        return f"a check is breached: {onward.sentence}"
    sentence = (
        f"the guard of {new.revision} was ended by {by}, {seconds_since(state.promoted_at, snapshot.now):.0f} of its "
        f"{snapshot.spec.rollout.keep_for_seconds} s after the promotion; the old arm {old.revision} goes"
    )
    after = replace(state, previous=None, reports=())
    told = happened(reasons.GUARD_OVER, sentence, warning=True)
    return NextState(after, "Progressing", reasons.GUARD_OVER, sentence, told, again_after=0.0)


def revert(state: State, old: ArmState) -> NextState:
    """The user asks for the previous model while it is still warm: stable a moment ago, it needs no new proof."""
    bad = state.stable.revision if state.stable else "none"
    sentence = f"back to {old.revision} as asked; it was still warm, {bad} goes"
    after = replace(state.without_canary(), stable=old, previous=None, promoted_at=None)
    return NextState(
        after, "Progressing", reasons.REVERTED, sentence, happened(reasons.REVERTED, sentence), again_after=0.0
    )


def _end(state: State, keep: int) -> str:
    promoted = parse(state.promoted_at)
    return stamp(promoted + timedelta(seconds=keep)) if promoted else f"{keep} s after its promotion"


def _awaits(snapshot: Snapshot, model: Model, old: ArmState) -> str:
    if model.revision == old.revision:
        return f"{model.revision} is wanted again and serves as soon as one of its pods is ready"
    return f"{model.revision} waits (`kubectl learnloop skip {snapshot.name}` lets it begin), {old.revision} is kept"
