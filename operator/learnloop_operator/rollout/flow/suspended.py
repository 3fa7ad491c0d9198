"""A ModelDeployment that is suspended: nothing goes up or on, and whatever rolls an arm back still does.

A person who stops the operator in the middle of a rollout wants no further step; nobody wants a bad canary to keep its
users. So the operator takes every look as in a rollout under way. Of what follows it carries out a fall only: an arm
that is rolled back or gets less. Promotions, raises, new canaries, the end of a guard and all orders but abort and
reject wait until spec.suspend is false.
"""

from dataclasses import replace

from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiment.decide import advance as advance_experiment
from learnloop_operator.rollout.flow.answer_orders import listen
from learnloop_operator.rollout.judging.analysis import observed, observed_promoted
from learnloop_operator.rollout.model.blocked_models import sentence
from learnloop_operator.rollout.model.next_state import NextState
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.steps.canary_steps import advance
from learnloop_operator.rollout.steps.guard_after_promotion import watch

ROLL_BACK = frozenset({"abort", "reject"})
"""Orders that are obeyed while suspended; the others are answered afterwards."""
IDLE = 60.0
"""Seconds between looks while no arm is on trial."""


def suspended(snapshot: Snapshot, state: State) -> NextState:
    """The fall that is due, or everything as it is."""
    state, order = listen(snapshot, state, ROLL_BACK)
    if order:
        return order
    onward = _onward(snapshot, state)
    if onward is None:
        return _nothing_on_trial(snapshot, state)
    return onward if falls(state, onward) else _frozen(snapshot, _with_tallies(state, onward))


def falls(state: State, onward: NextState) -> bool:
    """Whether all that the move does is to take something away from an arm on trial."""
    after = onward.state
    if onward.phase == "RolledBack":
        return True
    if after.stable != state.stable or after.previous != state.previous:
        return False
    if after.canary is None or state.canary is None:
        return after.canary is state.canary and _guests(after) < _guests(state)
    if after.canary.revision != state.canary.revision or after.step != state.step or after.weight > state.weight:
        return False
    return after.weight < state.weight or _guests(after) < _guests(state)


def _guests(state: State) -> int:
    return len(state.experiment.guests()) if state.experiment else 0


def _onward(snapshot: Snapshot, state: State) -> NextState | None:
    """What would follow if it were not suspended, as far as an arm on trial is concerned."""
    if state.canary and state.step is not None:
        return advance(snapshot, state, state.canary)
    if state.experiment and state.experiment.running and state.experiment.step is None and not state.canary:
        return advance_experiment(snapshot, state, state.experiment)
    if state.previous and state.stable:
        return watch(snapshot, state, state.stable, state.previous)
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
        state = observed(snapshot, state, state.canary)
    elif state.previous and state.stable:
        sentence = f"suspended: the checks of {state.stable.revision} go on and may roll it back"
        state = observed_promoted(snapshot, state, state.stable, state.previous)
    else:
        sentence = "suspended: the experiment decides nothing; an arm that breaks a bar still leaves it"
    interval = float(snapshot.spec.analysis.interval_seconds)
    return NextState(state, "Suspended", reasons.SUSPENDED, sentence, again_after=interval)


def _nothing_on_trial(snapshot: Snapshot, state: State) -> NextState:
    model = snapshot.desired.model
    pin = state.in_the_way(model)
    known = f"suspended; {sentence(pin, model)}" if pin and model else "suspended: weights and arms stay as they are"
    return NextState(state, "Suspended", reasons.SUSPENDED, known, again_after=IDLE)
