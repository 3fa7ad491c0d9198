"""A RewardPolicy's reward of an episode: components, shaping, normalisation, bounds, constraints, credit."""

import math

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.reward_policy import (
    Bounds,
    CreditAssignment,
    Normalisation,
    PotentialShaping,
    RewardComponent,
    RewardPolicySpec,
    SafetyConstraint,
)
from learnloop_common.reward_rules.components import (
    Episode,
    component_value,
    credits,
    evaluate,
    potential_sum,
    potential_terms,
)
from learnloop_dataplane.rewards.reward_tables import Running, confidence, normalise, settle

small = st.floats(-100, 100)
methods = st.sampled_from(["none", "zscore", "minmax"])


def component(kind: str, **changes) -> RewardComponent:
    return RewardComponent.model_validate({"name": kind, "type": kind, "weight": 1.0} | changes)


def steps(potentials: list[float], *, terminated: bool = False) -> list[dict]:
    log = [{"observation": [0.0, value], "action": 0, "reward": 1.0, "terminated": False} for value in potentials]
    log[-1]["terminated"] = terminated
    return log


VALUES = {
    "quality": 3.0,
    "feedback": -5.0,
    "collisions": 4.0,
    "discoveries": 6.0,
    "cooperation": 0.5,
    "joint_attempts": 4.0,
    "joint_successes": 3.0,
    "global": 9.0,
    "counterfactual": 5.0,
}
LOG = [{"action": [0.0, 0.0]}, {"action": [0.5, 0.5]}, {"action": [0.5, 0.5]}]


@pytest.mark.parametrize(
    ("kind", "scale", "expected"),
    [
        ("environment", 10, 1.2),
        ("success", 1, 1.0),
        ("efficiency", 10, 0.7),
        ("base", 1, 3.0),
        ("time", 100, -0.03),
        ("quality", 5, 0.6),
        ("feedback", 1, -1.0),
        ("collision", 2, -2.0),
        ("exploration", 12, 0.5),
        ("cooperation", 1, 0.5),
        ("coordination", 1, 0.75),
        ("difference", 2, 2.0),
        ("smoothness", 1, 0.75),
    ],
)
def test_each_component_is_its_formula(kind: str, scale: float, expected: float) -> None:
    episode = Episode(12.0, True, 3, VALUES, LOG)
    assert component_value(component(kind, scale=scale), episode) == pytest.approx(expected)


def test_the_default_is_completion_efficiency_quality_and_feedback() -> None:
    worth = evaluate(RewardPolicySpec(), Episode(0.0, True, 50, {"quality": 0.8, "feedback": 1.0}))
    assert worth.raw == pytest.approx(0.4 * 1 + 0.2 * 0.5 + 0.15 * 0.8 + 0.25 * 1)
    assert worth.coverage == pytest.approx(1.0)


def test_a_missing_measurement_costs_confidence_and_may_give_its_weight_to_the_others() -> None:
    episode = Episode(0.0, True, 0, {"quality": 1.0})
    zero, shared = (evaluate(RewardPolicySpec(missing=rule), episode) for rule in ("zero", "reweigh"))
    assert (zero.raw, shared.raw) == (pytest.approx(0.75), pytest.approx(1.0))
    assert zero.coverage == shared.coverage == pytest.approx(0.75)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_measurement_that_is_no_number_is_refused_with_field_value_and_fix(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^values.quality: {value} is not a finite number; send a finite one"):
        evaluate(RewardPolicySpec(), Episode(0.0, True, 1, {"quality": value}))


@given(st.lists(small, min_size=1, max_size=8), st.lists(small, max_size=6), small, small, st.booleans())
def test_shaping_leaves_the_ranking_of_trajectories_with_equal_ends_unchanged(
    one: list[float], other: list[float], first_reward: float, second_reward: float, terminated: bool
) -> None:
    spec = RewardPolicySpec(components=[component("environment")])
    shaped = spec.model_copy(update={"shaping": PotentialShaping(observation=1, weight=0.5, discount=1.0)})
    ends = ([7.0, *one, 3.0], [7.0, *other, 3.0])
    episodes = [
        Episode(reward, None, len(path), {}, steps(path, terminated=terminated))
        for reward, path in zip((first_reward, second_reward), ends, strict=True)
    ]
    plain = [evaluate(spec, episode).raw for episode in episodes]
    added = [evaluate(shaped, episode).raw for episode in episodes]
    assert added[0] - added[1] == pytest.approx(plain[0] - plain[1], abs=1e-9)


@given(st.lists(small, min_size=1, max_size=12), st.floats(0.5, 1), st.booleans())
def test_the_shaping_of_the_steps_adds_up_to_that_of_the_episode(path, discount, terminated):
    rule, log = PotentialShaping(observation=1, weight=2.0, discount=discount), steps(path, terminated=terminated)
    terms = potential_terms(rule, log)
    assert len(terms) == len(log)
    assert math.fsum(terms) == pytest.approx(potential_sum(rule, log), abs=1e-6)


@given(st.lists(small, min_size=1, max_size=60), small, small, methods)
def test_every_normalisation_is_monotone(history: list[float], one: float, other: float, method: str) -> None:
    rule, running = Normalisation.model_validate({"method": method}), Running()
    for value in (*history, one, other):
        running = running.add(value)
    low, high = (normalise(value, running, rule) for value in sorted((one, other)))
    assert low <= high
    if method == "minmax":
        assert 0 <= low <= high <= 1


@given(st.lists(small, min_size=1, max_size=30), methods, st.floats(-5, 0), st.floats(0.1, 5), st.floats(-9, 9))
def test_bounds_hold_and_a_broken_constraint_bounds_the_reward_below_them(returns, method, low, high, at_most):
    spec = RewardPolicySpec(
        components=[component("environment")],
        normalisation=Normalisation.model_validate({"method": method}),
        bounds=Bounds(minimum=low, maximum=high),
        constraints=[SafetyConstraint(name="crash", key="collisions", maximum=1, reward_at_most=at_most)],
    )
    running = Running()
    for index, value in enumerate(returns):
        worth = evaluate(spec, Episode(value, None, 1, {"collisions": float(index % 3)}))
        reward, running = settle(spec, worth, running)
        assert reward <= high
        if index % 3 == 2:
            assert (worth.broken, reward <= at_most) == (("crash",), True)
        else:
            assert low <= reward
        assert 0 <= confidence(spec, worth, running) <= 1


@given(
    st.lists(small, min_size=1, max_size=20),
    small,
    st.sampled_from(["final", "uniform", "discounted", "environment"]),
    st.floats(0.01, 1),
)
def test_the_parts_of_the_steps_add_up_to_the_reward(rewards, reward, method, discount):
    rule = CreditAssignment.model_validate({"method": method, "discount": discount})
    parts = credits(rule, reward, [{"reward": value} for value in rewards])
    assert len(parts) == len(rewards)
    assert math.fsum(parts) == pytest.approx(reward, abs=1e-9)
    assert all(part * reward >= 0 for part in parts), "no step is blamed for a good episode"


def test_credit_goes_where_the_method_says() -> None:
    log = [{"reward": 1.0}, {"reward": 0.0}, {"reward": -3.0}]
    parts = {
        method: credits(CreditAssignment.model_validate({"method": method, "discount": 0.5}), 7.0, log)
        for method in ("final", "discounted", "environment")
    }
    assert parts == {"final": [0, 0, 7], "discounted": [1, 2, 4], "environment": [1.75, 0, 5.25]}
