"""The stable arm: the first model takes its place, and an arm that has lost its pods leaves it to the canary."""

from dataclasses import replace

from learnloop_operator.core.times import seconds_since, stamp
from learnloop_operator.rollout import arm_pods, reasons
from learnloop_operator.rollout.judging import release_gates
from learnloop_operator.rollout.model import rollout_state
from learnloop_operator.rollout.model.rollout_state import COMPLETE, ArmState, NextState, State, done, past
from learnloop_operator.rollout.model.snapshot import Model, Snapshot
from learnloop_operator.rollout.steps import rollback_and_guard


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
        sentence = f"{rollout_state.why_blocked(block, model)}; nothing serves until a new model, or a retry"
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
    block = rollback_and_guard.block_of(
        snapshot, candidate, reasons.GATE_FAILED, f"RolledBack before its first episode: {gated.sentence}"
    )
    back = rollback_and_guard.blocked(gated.state, block, reasons.ROLLED_BACK)
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
