"""Which of the rollout's situations this is. Read from top to bottom: the first that fits decides."""

from dataclasses import replace

from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.experiment.decide import advance as advance_experiment
from learnloop_operator.core.rollout.experiment.start import begin as begin_experiment
from learnloop_operator.core.rollout.experiment.start import due
from learnloop_operator.core.rollout.flow.answer_orders import listen
from learnloop_operator.core.rollout.flow.suspended import suspended
from learnloop_operator.core.rollout.judging.arm_capacity import hopeless, look_at_pods, ready, world
from learnloop_operator.core.rollout.model import blocked_models as blocked
from learnloop_operator.core.rollout.model.next_state import NextState, happened
from learnloop_operator.core.rollout.model.rollout_state import ArmState, State
from learnloop_operator.core.rollout.model.snapshot import Model, Snapshot
from learnloop_operator.core.rollout.steps.canary_steps import advance
from learnloop_operator.core.rollout.steps.guard_after_promotion import revert, watch
from learnloop_operator.core.rollout.steps.rollback import adopt, drop_canary
from learnloop_operator.core.times import stamp


def move(snapshot: Snapshot, state: State) -> NextState:
    """The one next thing for this ModelDeployment."""
    adopted = adopt(snapshot, state)
    if adopted:
        return adopted
    if snapshot.spec.suspend:
        return suspended(snapshot, state)
    state, order = listen(snapshot, state)
    if order:
        return order
    if snapshot.spec.routing.mode == "gateway" and snapshot.spec.routing.gateway is None:
        sentence = "spec.routing.gateway: missing, and mode gateway needs it; name a Gateway or set mode: service"
        return NextState(state, "Degraded", reasons.GATEWAY_MISSING, sentence, degraded=True)
    if state.stable is None:
        return _first(snapshot, state)
    return _with_stable(snapshot, state, state.stable)


def _with_stable(snapshot: Snapshot, state: State, stable: ArmState) -> NextState:
    model = snapshot.desired.model
    if state.canary:
        if state.hand and state.hand.verb == "undo":
            return advance(snapshot, state, state.canary)
        if model is not None and model.revision != state.canary.revision:
            return _leave(state, state.canary, stable, model)
        onward = advance(snapshot, state, state.canary)
        return onward if model is not None or _falls(state, onward) else _lost_model(snapshot, state)
    if state.experiment and state.experiment.running and state.experiment.step is None:
        return advance_experiment(snapshot, state, state.experiment)
    if (
        model is not None
        and state.previous
        and model.revision == state.previous.revision
        and ready(snapshot, model.revision)
    ):
        return revert(state, state.previous)
    if state.previous:
        return watch(snapshot, state, stable, state.previous)
    fresh = model is not None and model.revision != stable.revision
    if model is not None and fresh and state.in_the_way(model) is None:
        return _begin(snapshot, state, model)
    asked = due(snapshot, state)
    if asked and model is not None and not fresh and ready(snapshot, stable.revision):
        return begin_experiment(snapshot, state, stable, asked)
    return _resting(snapshot, state, stable)


def _falls(state: State, onward: NextState) -> bool:
    """Whether the canary, or a guest of its experiment, gets less than before."""
    canary = onward.state.canary
    if onward.phase == "RolledBack" or state.canary is None or canary is None:
        return onward.phase == "RolledBack"
    before, after = (len(item.experiment.guests()) if item.experiment else 0 for item in (state, onward.state))
    return onward.state.weight < state.weight or (canary.revision == state.canary.revision and after < before)


def _lost_model(snapshot: Snapshot, state: State) -> NextState:
    """Nobody says any more that the canary is wanted: it may fall, and it may not rise."""
    problem = snapshot.desired.problem
    sentence = f"holding at {state.weight} %: {problem}"
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Progressing", reasons.MODEL_UNRESOLVED, sentence, again_after=interval, data=problem)


def _first(snapshot: Snapshot, state: State) -> NextState:
    """Nothing serves yet, so there is nothing to compare with: the first model serves as soon as it can."""
    model = snapshot.desired.model
    if model is None:
        return NextState(state, "Pending", reasons.MODEL_UNRESOLVED, snapshot.desired.problem, again_after=30.0)
    arm = world(snapshot, model.revision)
    if arm.ready > 0 or (snapshot.spec.serving.replicas == 0 and arm.pod is not None):
        sentence = f"{model.revision} is the first model and serves every episode"
        first = ArmState(model, stamp(snapshot.now), was_ready=arm.ready > 0)
        return NextState(
            replace(state, stable=first),
            "Healthy",
            reasons.FIRST_MODEL,
            sentence,
            happened(reasons.FIRST_MODEL, sentence),
            again_after=0.0,
        )
    said = f": {arm.message}" if arm.message else ""
    sentence = f"waiting for the pods of the first model {model.revision}{said}"
    return NextState(
        state,
        "Degraded" if hopeless(arm) else "Pending",
        reasons.WAITING_FOR_PODS,
        sentence,
        again_after=look_at_pods(snapshot, model.revision),
        degraded=bool(arm.message),
    )


def _begin(snapshot: Snapshot, state: State, model: Model) -> NextState:
    sentence = f"{model.revision} is new ({model.uri}); it starts as a canary without episodes"
    now = stamp(snapshot.now)
    after = replace(
        state.without_canary(),
        canary=ArmState(model, now, was_ready=False),
        promoted_at=None,
        rollout_started_at=now,
    )
    return NextState(
        after,
        "Progressing",
        reasons.CANARY_CREATED,
        sentence,
        happened(reasons.CANARY_CREATED, sentence),
        again_after=5.0,
    )


def _leave(state: State, canary: ArmState, stable: ArmState, wanted: Model) -> NextState:
    if wanted.revision == stable.revision:
        return drop_canary(
            state, reasons.REVERTED, f"canary {canary.revision} withdrawn: stable {stable.revision} is wanted again"
        )
    return drop_canary(
        state, reasons.SUPERSEDED, f"canary {canary.revision} withdrawn: {wanted.revision} takes its place"
    )


def _resting(snapshot: Snapshot, state: State, stable: ArmState) -> NextState:
    model = snapshot.desired.model
    pin = state.in_the_way(model)
    if pin and model is not None:
        sentence = f"{blocked.sentence(pin, model)}; {stable.revision} keeps serving"
        return NextState(state, "RolledBack", reasons.BLOCKED, sentence)
    arm = world(snapshot, stable.revision)
    if arm.ready == 0 and snapshot.spec.serving.replicas > 0:
        said = f": {arm.message}" if arm.message else ""
        sentence = f"the stable arm {stable.revision} has no ready pod{said}"
        soon = look_at_pods(snapshot, stable.revision)
        return NextState(state, "Degraded", reasons.PODS_NOT_READY, sentence, again_after=soon, degraded=True)
    if model is None:
        sentence = f"{stable.revision} keeps serving; {snapshot.desired.problem}"
        return NextState(state, "Healthy", reasons.MODEL_UNRESOLVED, sentence)
    return NextState(state, "Healthy", reasons.HEALTHY, f"{stable.revision} serves every episode")
