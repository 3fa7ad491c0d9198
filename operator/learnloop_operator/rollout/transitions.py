"""Rules of a rollout in the order in which they are tried. The first that applies decides."""

from collections.abc import Callable
from dataclasses import replace

from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import experiments, order_effects, reasons
from learnloop_operator.rollout.judging.judgement import with_comparisons
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State, done, why_blocked
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.rollout.steps import canary_steps, rollback, stable_arm

RolloutRule = Callable[[Snapshot, State], NextState | None]


def move(snapshot: Snapshot, state: State) -> NextState:
    """The one next thing for this ModelDeployment."""
    early = _first_of(BEFORE_ORDERS, snapshot, state)
    if early:
        return early
    state, order = order_effects.obey(snapshot, state)
    result = order or _first_of(RULES, snapshot, state)
    assert result is not None, "the last rule always applies"
    return result


def _first_of(rules: tuple[RolloutRule, ...], snapshot: Snapshot, state: State) -> NextState | None:
    for rule in rules:
        result = rule(snapshot, state)
        if result is not None:
            return result
    return None


def stay_suspended(snapshot: Snapshot, state: State) -> NextState | None:
    """spec.suspend: no step goes up, and whatever rolls an arm back still does."""
    return suspended(snapshot, state) if snapshot.spec.suspend else None


def leave_canary(snapshot: Snapshot, state: State) -> NextState | None:
    """Another model than the canary's is wanted; one that a person has undone is on its way whatever is wanted."""
    model, canary, stable = snapshot.desired.model, state.canary, state.stable
    if canary is None or stable is None or model is None or model.revision == canary.revision or _is_undone(state):
        return None
    if model.revision == stable.revision:
        return rollback.drop_canary(
            state, reasons.REVERTED, f"canary {canary.revision} withdrawn: stable {stable.revision} is wanted again"
        )
    return rollback.drop_canary(
        state, reasons.SUPERSEDED, f"canary {canary.revision} withdrawn: {model.revision} takes its place"
    )


def advance_canary(snapshot: Snapshot, state: State) -> NextState | None:
    """Advances the canary. While the wanted model cannot be resolved, its weight may only decrease."""
    if state.canary is None:
        return None
    onward = canary_steps.advance(snapshot, state, state.canary)
    if state.stable and snapshot.spec.serving.replicas and not snapshot.arm(state.stable.revision).ready:
        onward = stable_arm.serve_by_canary_when_stable_is_lost(snapshot, state, state.stable, state.canary, onward)
    if snapshot.desired.model is not None or _is_undone(state) or _gets_less(state, onward):
        return onward
    problem = snapshot.desired.problem
    sentence = f"holding at {state.weight} %: {problem}"
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Progressing", reasons.MODEL_UNRESOLVED, sentence, again_after=interval, missing=problem)


def _is_undone(state: State) -> bool:
    """Whether the canary is the earlier model that a person has asked to serve again."""
    return state.standing_order is not None and state.standing_order.verb == "undo"


def _gets_less(state: State, onward: NextState) -> bool:
    """Whether the canary gets less than before."""
    if onward.phase == "RolledBack":
        return True
    return bool(state.canary and onward.state.canary) and onward.state.weight < state.weight


def advance_running_experiment(snapshot: Snapshot, state: State) -> NextState | None:
    """A running experiment compares its arms and decides."""
    trial = state.experiment
    return experiments.advance_experiment(snapshot, state, trial) if trial and trial.running else None


def return_to_previous(snapshot: Snapshot, state: State) -> NextState | None:
    """The model before the promotion is wanted again, and its pods still stand."""
    model, previous = snapshot.desired.model, state.previous
    if model is None or previous is None or model.revision != previous.revision:
        return None
    return stable_arm.revert(state, previous) if snapshot.arm(model.revision).ready else None


def guard_promoted(snapshot: Snapshot, state: State) -> NextState | None:
    """After a promotion the checks go on while the previous arm is kept."""
    if state.previous is None or state.stable is None:
        return None
    return stable_arm.guard(snapshot, state, state.stable, state.previous)


def begin_canary(snapshot: Snapshot, state: State) -> NextState | None:
    """A new model that nothing blocks starts as a canary without episodes."""
    model, stable = snapshot.desired.model, state.stable
    if model is None or stable is None or model.revision == stable.revision or state.in_the_way(model) is not None:
        return None
    sentence = f"{model.revision} is new ({model.uri}); it starts as a canary without episodes"
    now = stamp(snapshot.now)
    after = replace(
        state.without_canary(),
        canary=ArmState(model, now, was_ready=False),
        gates=None,
        promoted_at=None,
        rollout_started_at=now,
    )
    return done(after, "Progressing", reasons.CANARY_CREATED, sentence, again_after=5.0)


def start_due_experiment(snapshot: Snapshot, state: State) -> NextState | None:
    """spec.experiment asks for one, and the stable arm is the wanted model and can serve."""
    model, stable, wanted = snapshot.desired.model, state.stable, experiments.due(snapshot, state)
    if not wanted or model is None or stable is None or model.revision != stable.revision:
        return None
    ready = snapshot.arm(stable.revision).ready
    return experiments.begin_experiment(snapshot, state, stable, wanted) if ready else None


def stay_blocked(snapshot: Snapshot, state: State) -> NextState | None:
    """The wanted model was rolled back: the stable arm serves until somebody says retry."""
    model, stable = snapshot.desired.model, state.stable
    block = state.in_the_way(model)
    if block is None or model is None or stable is None:
        return None
    why, retry = why_blocked(block, model), f"`kubectl learnloop retry {snapshot.name}`"
    sentence = f"{why}; {stable.revision} serves until a new model, or {retry}"
    return NextState(state, "RolledBack", reasons.BLOCKED, sentence)


def keep_serving(snapshot: Snapshot, state: State) -> NextState | None:
    assert state.stable is not None, "serve_first_model has answered before"
    revision = state.stable.revision
    if snapshot.desired.model is None:
        sentence = f"{revision} keeps serving; {snapshot.desired.problem}"
        return NextState(state, "Healthy", reasons.MODEL_UNRESOLVED, sentence)
    return NextState(state, "Healthy", reasons.HEALTHY, f"{revision} serves every episode")


BEFORE_ORDERS: tuple[RolloutRule, ...] = (rollback.adopt, stay_suspended)
RULES: tuple[RolloutRule, ...] = (
    stable_arm.serve_first_model,
    leave_canary,
    advance_canary,
    advance_running_experiment,
    return_to_previous,
    guard_promoted,
    begin_canary,
    start_due_experiment,
    stay_blocked,
    stable_arm.await_stable_pods,
    keep_serving,
)


# A ModelDeployment that is suspended: nothing goes up or on, and whatever rolls an arm back still does.
#
# A person who stops the operator in the middle of a rollout wants no further step, and no bad canary to keep
# its users. So the operator takes every look as in a rollout under way. Of what follows it carries out a fall only:
# an arm that is rolled back or gets less. Promotions, raises, new canaries, the end of a guard and all orders but
# abort and reject wait until spec.suspend is false.


ROLL_BACK = frozenset({"abort", "reject"})
"""Orders that are obeyed while suspended; the others are answered afterwards."""
IDLE = 60.0
"""Seconds between looks while no arm is on trial."""


def suspended(snapshot: Snapshot, state: State) -> NextState:
    """The fall that is due, or everything as it is."""
    state, order = order_effects.obey(snapshot, state, ROLL_BACK)
    if order:
        return order
    onward = _onward(snapshot, state)
    if onward is None:
        return _nothing_on_trial(snapshot, state)
    return onward if _only_falls(state, onward) else _frozen(snapshot, _with_tallies(state, onward))


def _only_falls(state: State, onward: NextState) -> bool:
    """Whether all that the move does is to take something away from an arm on trial."""
    after = onward.state
    if onward.phase == "RolledBack":
        return True
    if after.stable != state.stable or after.previous != state.previous:
        return False
    if after.canary is None or state.canary is None:
        return after.canary is state.canary and after.challenger_count < state.challenger_count
    same = after.canary.revision == state.canary.revision and after.step == state.step
    return same and after.weight < state.weight


def _onward(snapshot: Snapshot, state: State) -> NextState | None:
    """The move that an unsuspended rollout would make for an arm on trial."""
    if state.canary and state.step is not None:
        return canary_steps.advance(snapshot, state, state.canary)
    if state.experiment and state.experiment.running and not state.canary:
        return experiments.advance_experiment(snapshot, state, state.experiment)
    if state.previous and state.stable:
        return stable_arm.guard(snapshot, state, state.stable, state.previous)
    return None


def _with_tallies(state: State, onward: NextState) -> State:
    """The state with what its experiment has counted at this look, and nothing of what follows from it."""
    before, after = state.experiment, onward.state.experiment
    if before is None or after is None or (before.id, before.phase) != (after.id, after.phase):
        return state
    return replace(state, experiment=replace(before, players=after.players))


def _frozen(snapshot: Snapshot, state: State) -> NextState:
    if state.canary:
        sentence = f"suspended at {state.weight} %: no step goes up; the checks go on and may roll the canary back"
        state = with_comparisons(snapshot, state, state.canary)
    elif state.previous and state.stable:
        sentence = f"suspended: the checks of {state.stable.revision} go on and may roll it back"
    else:
        sentence = "suspended: the experiment decides nothing; an arm that breaks a bar still leaves it"
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Suspended", reasons.SUSPENDED, sentence, again_after=interval)


def _nothing_on_trial(snapshot: Snapshot, state: State) -> NextState:
    model = snapshot.desired.model
    block = state.in_the_way(model)
    why = why_blocked(block, model) if block and model else ""
    text = f"suspended; {why}" if why else "suspended: weights and arms stay as they are"
    return NextState(state, "Suspended", reasons.SUSPENDED, text, again_after=IDLE)
