"""The way of a canary: it waits for its pods, passes gates, rises step by step, and is promoted or rolled back.

A standing order takes effect after the checks: a pause or a promotion by a person does not prevent a rollback.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts import gates, rollout_steps
from learnloop_operator.core.times import seconds_since, stamp
from learnloop_operator.rollout import evidence, reasons
from learnloop_operator.rollout.judging import judgement, release_gates, shadow_step, watched_arms
from learnloop_operator.rollout.state.orders import noted, who
from learnloop_operator.rollout.state.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    canary_replicas,
    done,
    happened,
    wait,
)
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.rollout.steps.rollback import roll_back
from learnloop_operator.rollout.steps.waits import (
    Wait,
    approval,
    evidence_for,
    stalled_where_mute,
    wait_for_evidence,
    wait_for_time_and_people,
)

# A canary under a person's order: held where it is, or led to 100 % without the rest of its evidence.


def under_order(snapshot: Snapshot, state: State, canary: ArmState, order: rollout_steps.StandingOrder) -> NextState:
    """One look at a canary that a person holds, promotes by hand, or has undone."""
    if order.verb == "pause":
        return _paused(snapshot, state, order)
    last = len(snapshot.spec.rollout.steps) - 1
    needed, ready = (
        canary_replicas(snapshot.spec, last),
        snapshot.arm(canary.revision).ready,
    )
    if state.step != last or ready < needed:
        sentence = f"{order.verb} by {order.by}: {ready} of the {needed} pods of {canary.revision} for 100 % are ready"
        after = replace(state, step=last)
        soon = 0.0 if state.step != last else snapshot.look_at_pods(canary.revision)
        return NextState(after, "Progressing", reasons.WAITING_FOR_PODS, sentence, again_after=soon, missing=COMPLETE)
    return _returned(state, canary, order) if order.verb == "undo" else _promoted(snapshot, state, canary, order)


def _paused(snapshot: Snapshot, state: State, order: rollout_steps.StandingOrder) -> NextState:
    sentence = (
        f"on hold at {state.weight} % since {order.at} by {order.by}; the checks go on; "
        f"`kubectl learnloop resume {snapshot.name}` continues it"
    )
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Paused", reasons.ON_HOLD, sentence, again_after=interval, missing=COMPLETE)


def _promoted(snapshot: Snapshot, state: State, canary: ArmState, order: rollout_steps.StandingOrder) -> NextState:
    counted = snapshot.evidence.arms.get(canary.revision)
    sentence = (
        f"promoted {canary.revision} by hand by {order.by} after {counted.episodes if counted else 0} episodes, "
        f"without its full evidence; the old arm stays warm for {snapshot.spec.rollout.keep_for_seconds} s"
    )
    after, reason = state.promoted(canary, snapshot.now), reasons.PROMOTED_BY_HAND
    return done(after, "Guarding", reason, sentence, warning=True, keep_table=True, missing=COMPLETE)


def _returned(state: State, canary: ArmState, order: rollout_steps.StandingOrder) -> NextState:
    """Back on the earlier model. The one that goes is not kept to swap back to: a person has judged it."""
    gone = state.stable.revision if state.stable else "none"
    sentence = f"rolled back to {canary.revision}, as {order.by} ordered; {gone} is removed and stays blocked"
    after = replace(state.without_canary(), stable=canary, previous=None, last_stable=None)
    return done(after, "Progressing", reasons.REVERTED, sentence)


# The way up: from a canary without pods to the last step.
#
# A raise is persisted before it is carried out: the status is written first, then the routing table
# (Plan.status_first). So the table never runs ahead of the status, whenever the operator dies, and the next pass
# finishes what was begun.


def advance(snapshot: Snapshot, state: State, canary: ArmState) -> NextState:
    """One look at a rollout under way."""
    if why := watched_arms.gross_breach(snapshot, state, canary.revision, "the canary"):
        return roll_back(snapshot, state, canary, reasons.GROSS_BREACH, why)
    return stalled_where_mute(snapshot, canary, _advance(snapshot, state, canary))


def _advance(snapshot: Snapshot, state: State, canary: ArmState) -> NextState:
    step = state.step
    if step is None:
        return _starting(snapshot, state, canary)
    state = judgement.with_comparisons(snapshot, state, canary)
    if snapshot.arm(canary.revision).ready == 0:
        return _lost_pods(snapshot, state, canary)
    return _at_step(snapshot, state, canary, step)


def _starting(snapshot: Snapshot, state: State, canary: ArmState) -> NextState:
    arm = snapshot.arm(canary.revision)
    needed = canary_replicas(snapshot.spec, None)
    if arm.ready >= needed:
        state = replace(state, step=0, weight=0, step_started_at=stamp(snapshot.now), step_base=0)
        first = snapshot.spec.rollout.steps[0]
        held = state.standing_order is not None and state.standing_order.verb == "pause"
        gated = release_gates.closed(snapshot, state, canary.revision)
        if first.weight and not held and not gated:
            return _to_weight(snapshot, state, canary, 0, first)
        sentence = f"canary {canary.revision} is ready with {arm.ready} of {needed} pods"
        return done(state, "Progressing", reasons.CANARY_READY, sentence)
    waited = seconds_since(state.rollout_started_at, snapshot.now)
    given_up = _given_up(snapshot, state, canary, waited)
    if given_up:
        return given_up
    text = f": {arm.message}" if arm.message else ""
    sentence = f"waiting for the canary's pods, {arm.ready} of {needed} ready{text}"
    soon = _next_look(snapshot, canary, waited)
    return NextState(
        state, "Progressing", reasons.WAITING_FOR_PODS, sentence, again_after=soon, degraded=bool(arm.message)
    )


def _lost_pods(snapshot: Snapshot, state: State, canary: ArmState) -> NextState:
    """A canary without a ready pod gets no episodes, and its step starts over when it is back."""
    waited = seconds_since(canary.since, snapshot.now)
    given_up = _given_up(snapshot, state, canary, waited)
    if given_up:
        return given_up
    text = f": {snapshot.arm(canary.revision).message}" if snapshot.arm(canary.revision).message else ""
    sentence = f"the canary {canary.revision} lost its last ready pod and gets no episodes until it is back{text}"
    events = happened(reasons.WEIGHT_LOWERED, sentence, warning=True) if state.weight else ()
    return NextState(
        replace(state, weight=0, step_base=None),
        "Progressing",
        reasons.PODS_NOT_READY,
        sentence,
        events,
        again_after=_next_look(snapshot, canary, waited),
        degraded=True,
    )


def _next_look(snapshot: Snapshot, canary: ArmState, waited: float) -> float:
    """Not later than the progress deadline."""
    rest = snapshot.spec.rollout.progress_deadline_seconds - waited
    return min(snapshot.look_at_pods(canary.revision), max(watched_arms.SOON, rest))


def _given_up(snapshot: Snapshot, state: State, canary: ArmState, seconds: float) -> NextState | None:
    arm = snapshot.arm(canary.revision)
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    if arm.hopeless:
        why = f"the pod gave up after {arm.restarts} starts: {arm.message}"
        return roll_back(snapshot, state, canary, reasons.MODEL_REFUSED, why)
    if seconds >= deadline:
        text = arm.message or "the pods gave no reason"
        why = f"the canary's pods were not ready within {deadline} s: {text}"
        return roll_back(snapshot, state, canary, reasons.PROGRESS_DEADLINE, why)
    return None


def _at_step(snapshot: Snapshot, state: State, canary: ArmState, step: int) -> NextState:
    assert state.stable is not None, "a canary needs a stable arm"
    verdict = judgement.judge_canary(snapshot, state, canary, state.stable)
    if state.weight and verdict.breach and not watched_arms.young(snapshot, state):
        return roll_back(snapshot, state, canary, verdict.breach_reason, verdict.breach)
    wanted = snapshot.spec.rollout.steps[step]
    if state.standing_order:
        failed = shadow_step.judge_shadow(snapshot, state, wanted.shadow).breach if wanted.shadow else ""
        if failed:
            return roll_back(snapshot, state, canary, reasons.CHECK_FAILED, failed)
        return under_order(snapshot, state, canary, state.standing_order)
    if release_gates.canary_waits(snapshot, state):
        gated = release_gates.pass_gates(snapshot, state, canary)
        if gated is not None:
            return _at_gates(snapshot, gated, canary)
    if state.weight != wanted.weight:
        return _change_weight(snapshot, state, canary, step, wanted, verdict)
    if wanted.shadow is not None:
        return _in_shadow(snapshot, state, canary, step, wanted, wanted.shadow)
    waits = evidence_for(snapshot, state, canary, wanted, verdict)
    return _wait_where_needed(snapshot, waits, canary, step, wanted) or _pass(snapshot, waits.state, canary, step)


def _at_gates(snapshot: Snapshot, gated: NextState, canary: ArmState) -> NextState:
    """Rolls a failed candidate back; it stays blocked until a retry."""
    if gated.phase != "RolledBack":
        return gated
    back = roll_back(snapshot, gated.state, canary, reasons.GATE_FAILED, gated.sentence)
    return replace(back, events=(*gated.events, *back.events))


def _in_shadow(
    snapshot: Snapshot,
    state: State,
    canary: ArmState,
    step: int,
    wanted: rollout_steps.RolloutStep,
    bars: gates.ShadowCheck,
) -> NextState:
    """No episode is at stake, so nothing but the copies is judged."""
    verdict = shadow_step.judge_shadow(snapshot, state, bars)
    if verdict.breach:
        return roll_back(snapshot, state, canary, reasons.CHECK_FAILED, verdict.breach)
    if verdict.hold:
        interval = float(snapshot.spec.analysis.interval_seconds)
        missing = snapshot.evidence.unavailable or verdict.hold
        return wait(state, verdict.hold_reason, f"in shadow: {verdict.hold}", interval, missing)
    patience = wait_for_time_and_people(snapshot, state, canary, step, wanted, f"in shadow: {verdict.passed}")
    return patience or _pass(snapshot, replace(state, step_started_at=stamp(snapshot.now)), canary, step)


def _change_weight(
    snapshot: Snapshot,
    state: State,
    canary: ArmState,
    step: int,
    wanted: rollout_steps.RolloutStep,
    verdict: judgement.Judgement,
) -> NextState:
    """Any change of weight. One to 100 % needs the evidence of both arms: without episodes of stable nothing can be
    compared. A person, late pods or lost ones may have brought the canary to this step without it."""
    lower = [item for item in snapshot.spec.rollout.steps[:step] if 0 < item.weight < 100]
    if wanted.weight < 100 or not lower or not verdict.hold:
        return _to_weight(snapshot, state, canary, step, wanted)
    if not state.weight:
        return _to_weight(snapshot, state, canary, step, lower[-1])
    sentence = f"holding at {state.weight} %, the last weight at which arms are compared: {verdict.hold}"
    missing = evidence.Missing(verdict.hold_reason, snapshot.evidence.unavailable or verdict.hold)
    return wait_for_evidence(snapshot, state, canary, missing, sentence)


def _to_weight(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, wanted: rollout_steps.RolloutStep
) -> NextState:
    interval = float(snapshot.spec.analysis.interval_seconds)
    if snapshot.evidence.unavailable and wanted.weight > state.weight:
        sentence = f"holding at {state.weight} %: no evidence: {snapshot.evidence.unavailable}"
        return wait(state, snapshot.evidence.reason, sentence, interval, snapshot.evidence.unavailable)
    arm, needed = snapshot.arm(canary.revision), canary_replicas(snapshot.spec, step)
    if arm.ready < needed and wanted.weight > state.weight:
        sentence = f"holding at {state.weight} %: {arm.ready} of the {needed} pods for {wanted.weight} % are ready"
        return wait(state, reasons.WAITING_FOR_PODS, sentence, interval)
    up = wanted.weight > state.weight
    sentence = f"step {step + 1}/{len(snapshot.spec.rollout.steps)}: {wanted.weight} % of new episodes to the canary"
    after = state.at_weight(wanted.weight, watched_arms.begun(state), snapshot.now)
    name = reasons.WEIGHT_RAISED if up else reasons.WEIGHT_LOWERED
    return NextState(after, "Progressing", reasons.STEPPING, sentence, happened(name, sentence), again_after=interval)


def _wait_where_needed(
    snapshot: Snapshot, waits: Wait, canary: ArmState, step: int, wanted: rollout_steps.RolloutStep
) -> NextState | None:
    state, missing = waits.state, waits.missing
    at = f"holding at {state.weight} %"
    if missing is not None:
        return wait_for_evidence(snapshot, state, canary, missing, f"{at}: {missing.text}", waits.soon)
    return wait_for_time_and_people(snapshot, state, canary, step, wanted, at)


def _pass(snapshot: Snapshot, state: State, canary: ArmState, step: int) -> NextState:
    if snapshot.spec.rollout.steps[step].pause:
        order = approval(snapshot, state, canary, step)
        assert order is not None, "a pause ends with an approval"
        text = f"step {step + 1} passes at {state.weight} %: approved by {who(snapshot, order)}"
        state = noted(snapshot, state, order, "obeyed", text)
    if step + 1 < len(snapshot.spec.rollout.steps):
        state, wanted = replace(state, step=step + 1), snapshot.spec.rollout.steps[step + 1]
        return _to_weight(snapshot, state, canary, step + 1, wanted)
    return _promote(snapshot, state, canary)


def _promote(snapshot: Snapshot, state: State, canary: ArmState) -> NextState:
    counted = snapshot.evidence.arms.get(canary.revision)
    mean = f", mean return {counted.mean_return:.1f}" if counted and counted.mean_return is not None else ""
    count = counted.episodes if counted else 0
    sentence = f"promoted {canary.revision} after {count} episodes{mean}; {_fate_of_stable(snapshot, state)}"
    after = state.promoted(canary, snapshot.now)
    return done(after, "Guarding", reasons.PROMOTED, sentence, keep_table=True, missing=COMPLETE)


def _fate_of_stable(snapshot: Snapshot, state: State) -> str:
    old = state.stable.revision if state.stable else "none"
    seconds = snapshot.spec.rollout.keep_for_seconds
    return f"the old arm {old} stays warm for {seconds} s" if seconds else f"the old arm {old} is removed"
