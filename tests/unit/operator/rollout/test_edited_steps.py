"""Steps that are edited while a canary climbs them: what was proven at one weight earns none above it."""

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.rollout.state.rollout_state import load
from testing.simulation.two_arm_rig import Rig


def climbing(to: int) -> Rig:
    """A canary as good as stable, at the weight `to` of 10, 25, 50, 100, which it has just got."""
    rig = Rig(1, 0.9)
    while rig.status.get("weight") != to:
        assert rig.run(1) == "Progressing"
    return rig


def edit(rig: Rig, *weights: int) -> None:
    rig.spec["rollout"]["steps"] = [{"weight": weight, "minEpisodes": 4000} for weight in weights]


@pytest.mark.parametrize(
    ("at", "steps", "after"),
    [
        (50, (1, 100), 1),
        (50, (25, 50, 100), 50),
        (50, (10, 20, 30, 40, 100), 40),
        (25, (10, 60, 100), 10),
        (25, (5, 25, 100), 25),
        (50, (100,), 100),
        (10, (10, 100), 10),
    ],
)
def test_an_edited_rollout_goes_on_at_the_last_step_that_asks_for_no_more(at, steps, after):
    rig = climbing(at)
    edit(rig, *steps)
    rig.run(4)
    assert rig.status["weight"] == after
    assert rig.status["stepWeight"] == after
    assert rig.status["phase"] == "Progressing"


def test_a_weight_that_was_earned_and_waits_for_its_pods_is_given_after_an_edit_below_it() -> None:
    steps = [RolloutStep(weight=weight) for weight in (5, 25, 50, 100)]
    assert load(status(step=1, weight=10, stepWeight=25), steps).step == 1


def status(**fields) -> ModelDeploymentStatus:
    canary = {"revision": "a" * 8, "uri": "uniform://discrete/2?observations=4"}
    return ModelDeploymentStatus.model_validate({"canary": canary, **fields})


rising = st.lists(st.integers(1, 99), max_size=6, unique=True).map(lambda drawn: [*sorted(drawn), 100])


@given(rising, rising, st.data())
def test_no_edit_takes_a_canary_to_a_step_above_its_weight_but_the_first(old, new, data):
    step = data.draw(st.integers(0, len(old) - 1))
    weight = data.draw(st.sampled_from([0, old[step], old[step - 1] if step else 0]))
    loaded = load(status(step=step, weight=weight, stepWeight=old[step]), [RolloutStep(weight=item) for item in new])
    assert loaded.weight == weight
    assert loaded.step == 0 or new[loaded.step] <= max(weight, old[step])
    if weight == old[step]:
        assert loaded.step == 0 or new[loaded.step] <= weight
    if new == old:
        assert loaded.step == step


@given(rising, st.integers(0, 20), st.integers(0, 100))
def test_a_status_of_an_earlier_version_is_taken_no_higher_by_shorter_steps(new, step, weight):
    loaded = load(status(step=step, weight=weight), [RolloutStep(weight=item) for item in new]).step
    assert loaded in (0, step) or new[loaded] <= weight
