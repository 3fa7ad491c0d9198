"""A canary under a person's order: held where it is, or led to 100 % without the rest of its evidence.

Both come after the checks: a hold or a promotion by hand does not keep a breach from rolling the canary back.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.decision import Hand
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging.arm_capacity import canary_replicas, look_at_pods, world
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import ArmState, State, past
from learnloop_operator.rollout.model.snapshot import Snapshot


def under_order(snapshot: Snapshot, state: State, canary: ArmState, hand: Hand) -> NextState:
    """One look at such a canary."""
    if hand.verb == "pause":
        return _on_hold(snapshot, state, hand)
    last = len(snapshot.spec.rollout.steps) - 1
    needed, ready = canary_replicas(snapshot.spec, last), world(snapshot, canary.revision).ready
    if state.step != last or ready < needed:
        sentence = f"{hand.verb} by {hand.by}: {ready} of the {needed} pods of {canary.revision} for 100 % are ready"
        after = replace(state, step=last)
        soon = 0.0 if state.step != last else look_at_pods(snapshot, canary.revision)
        return NextState(after, "Progressing", reasons.WAITING_FOR_PODS, sentence, again_after=soon, data="")
    return _returned(state, canary, hand) if hand.verb == "undo" else _promoted(snapshot, state, canary, hand)


def _on_hold(snapshot: Snapshot, state: State, hand: Hand) -> NextState:
    sentence = (
        f"on hold at {state.weight} % since {hand.at} by {hand.by}; the checks go on; "
        f"`kubectl learnloop resume {snapshot.name}` lets it go on"
    )
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Paused", reasons.ON_HOLD, sentence, again_after=interval, data="")


def _promoted(snapshot: Snapshot, state: State, canary: ArmState, hand: Hand) -> NextState:
    seen = snapshot.evidence.arms.get(canary.revision)
    sentence = (
        f"promoted {canary.revision} by hand by {hand.by} after {seen.episodes if seen else 0} episodes, "
        f"without its full evidence; the old arm stays warm for {snapshot.spec.rollout.keep_for_seconds} s"
    )
    after = replace(
        state.without_canary(),
        stable=canary,
        previous=state.stable,
        last_stable=past(state.stable),
        promoted_at=stamp(snapshot.now),
    )
    events = happened(reasons.PROMOTED_BY_HAND, sentence, warning=True)
    return NextState(
        after, "Guarding", reasons.PROMOTED_BY_HAND, sentence, events, again_after=0.0, keep_table=True, data=""
    )


def _returned(state: State, canary: ArmState, hand: Hand) -> NextState:
    """Back on the earlier model. The one that goes is not kept to swap back to: a person has judged it."""
    gone = state.stable.revision if state.stable else "none"
    sentence = f"back on {canary.revision} as {hand.by} said; {gone} goes and stays blocked"
    after = replace(state.without_canary(), stable=canary, previous=None, last_stable=None)
    return NextState(
        after,
        "Progressing",
        reasons.REVERTED,
        sentence,
        happened(reasons.REVERTED, sentence),
        again_after=0.0,
    )
