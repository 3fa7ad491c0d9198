"""How policies act: every draw says its own probability, and a file from outside says only what can be true."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from learnloop_api.kinds.behaviour import GREEDY, SAMPLED, Behaviour
from learnloop_api.wire.routing import ActResponse
from learnloop_common.acting import policy
from learnloop_common.acting.policy import Advice, Numbers, decide, log_probability

LOGITS = st.lists(st.floats(-50, 50) | st.just(-1e30), min_size=1, max_size=8).filter(lambda drawn: max(drawn) > -60)
EXPLORING = st.builds(Behaviour, kind=st.just("epsilon-greedy"), epsilon=st.floats(0.001, 1))
SOFTMAX = st.builds(Behaviour, kind=st.just("sampled"), temperature=st.floats(0.001, 1000))


def best(logits: list[float]) -> Advice:
    return Advice(logits.index(max(logits)), logits)


@given(behaviour=EXPLORING | SOFTMAX | st.just(GREEDY), logits=LOGITS)
def test_the_probabilities_of_all_choices_add_up_and_forbidden_ones_have_none(behaviour, logits):
    advice = best(logits)
    densities = [log_probability(behaviour, None, advice, action) for action in range(len(logits))]
    assert sum(math.exp(one) for one in densities if one is not None) == pytest.approx(1.0)
    assert all(one == -math.inf for one, logit in zip(densities, logits, strict=True) if logit == -1e30)
    assert all(one is not None and one <= 0 for one in densities)


@given(behaviour=EXPLORING | SOFTMAX | st.just(GREEDY), logits=LOGITS, seed=st.integers(0, 99))
def test_a_choice_is_told_with_its_own_probability_and_is_never_a_forbidden_one(behaviour, logits, seed):
    advice = best(logits)
    decision = decide(behaviour, None, advice, random.Random(seed).random)
    assert isinstance(decision.action, int)
    assert logits[decision.action] > -1e30
    assert decision.log_prob == log_probability(behaviour, None, advice, decision.action)
    assert decision.drawn == (behaviour.kind != "greedy")


@pytest.mark.parametrize(
    "behaviour", [Behaviour(kind="epsilon-greedy", epsilon=0.3), Behaviour(kind="sampled", temperature=2.0), SAMPLED]
)
def test_choices_are_drawn_as_often_as_they_say(behaviour: Behaviour) -> None:
    wanted = [0.5, 1.5, 1.0, 0.0]
    advice, draw = Advice(1, [0.5, 1.5, -1e30, 0.0], unshielded=wanted), random.Random(0).random
    made = [decide(behaviour, None, advice, draw) for _ in range(20_000)]
    forbidden = math.exp(log_probability(behaviour, None, best(wanted), 2) or 0.0)
    assert sum(one.intervened or 0 for one in made) / 20_000 == pytest.approx(forbidden, abs=0.015)
    counts = Counter(one.action for one in made)
    for action in range(4):
        log_prob = log_probability(behaviour, None, advice, action)
        assert counts[action] / 20_000 == pytest.approx(math.exp(log_prob), abs=0.015)


def test_the_edge_of_a_random_number_never_leads_to_a_forbidden_choice() -> None:
    nearly_one: Callable[[], float] = lambda: 1.0 - 2.0**-53  # noqa: E731
    for logits in ([0.0, 0.3, -1e30], [-1e30, 5.0, 5.0, -1e30]):
        for behaviour in (SAMPLED, Behaviour(kind="epsilon-greedy", epsilon=1.0)):
            action = decide(behaviour, None, best(logits), nearly_one).action
            assert isinstance(action, int)
            assert logits[action] > -1e30


def density(advice: Advice, numbers: Numbers, number: float) -> float:
    log_density = log_probability(SAMPLED, numbers, advice, [number])
    return math.exp(log_density)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.05), (0.7, 0.8), (-1.5, 0.3)])
def test_the_density_of_a_number_integrates_to_one_and_may_be_above_one(mean: float, deviation: float) -> None:
    numbers = Numbers((-0.5,), (1.5,))
    advice = Advice([0.0], None, [mean], [deviation])
    points = 20_000
    densities = [density(advice, numbers, -0.5 + 2.0 * (index + 0.5) / points) for index in range(points)]
    assert sum(densities) * 2.0 / points == pytest.approx(1.0, abs=0.01)
    assert max(densities) > 0.5  # uniform would be 0.5 everywhere


def test_numbers_are_drawn_by_their_density() -> None:
    numbers = Numbers((-2.0,), (2.0,))
    advice, draw = Advice([1.0], None, [0.4], [0.5]), random.Random(3).random
    drawn = [decide(SAMPLED, numbers, advice, draw).action for _ in range(20_000)]
    values = [one[0] for one in drawn if isinstance(one, list)]
    for low in (-1.5, -0.5, 0.5, 1.5):
        share = sum(low <= value < low + 0.5 for value in values) / len(values)
        mass = sum(density(advice, numbers, low + 0.5 * (step + 0.5) / 200) for step in range(200)) * 0.5 / 200
        assert share == pytest.approx(mass, abs=0.015)


@given(mean=st.floats(-300, 300), deviation=st.floats(1e-9, 1e4), low=st.floats(-1e6, 1e6), reach=st.floats(0.01, 1e6))
def test_every_number_drawn_lies_within_its_bounds_and_fits_the_wire(mean, deviation, low, reach):
    numbers = Numbers((low,), (low + reach,), choices=2)
    advice = Advice([0.0, low], [0.0, 1.0], [mean], [deviation])
    decision = decide(SAMPLED, numbers, advice, random.Random(1).random)
    assert isinstance(decision.action, list)
    assert decision.action[0] in (0.0, 1.0)
    assert low <= decision.action[1] <= low + reach
    ActResponse(action=decision.action, log_prob=decision.log_prob, exploration=True, revision="r")


def test_what_cannot_be_compared_has_no_probability() -> None:
    numbers, advice = Numbers((-1.0,), (1.0,)), Advice([0.0], None, [0.0], [1.0])
    assert log_probability(GREEDY, numbers, advice, [0.0]) is None
    assert log_probability(SAMPLED, numbers, advice, [0.0, 0.0]) is None
    assert log_probability(SAMPLED, numbers, advice, 0) is None
    assert log_probability(SAMPLED, None, best([0.0, 1.0]), [1.0]) is None
    assert log_probability(SAMPLED, None, best([0.0, 1.0]), 2) == -math.inf


def test_a_file_that_does_not_say_acts_as_is_usual_for_its_algorithm() -> None:
    def kind(algorithm: str, continuous: bool = False) -> str:
        return policy.behaviour_of({"learnloop.algorithm": algorithm}, continuous=continuous).kind

    assert [kind(name) for name in ("dqn", "hierarchical-dqn", "independent-dqn", "qmix")] == ["greedy"] * 4
    assert [kind(name) for name in ("ppo", "iql-offline", "bc", "")] == ["sampled"] * 4
    assert [kind(name, True) for name in ("ppo", "sac", "maddpg", "maml", "")] == ["greedy"] * 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"kind": "boldly"}',
        '{"kind": "greedy", "epsilon": 0.1}',
        '{"kind": "greedy", "temperature": 1}',
        '{"kind": "epsilon-greedy"}',
        '{"kind": "epsilon-greedy", "epsilon": 0}',
        '{"kind": "epsilon-greedy", "epsilon": 1.01}',
        '{"kind": "epsilon-greedy", "epsilon": NaN}',
        '{"kind": "sampled", "temperature": 0}',
        '{"kind": "sampled", "temperature": -1}',
        '{"kind": "sampled", "temperature": Infinity}',
        '{"kind": "sampled", "temperature": 1e999}',
        '{"kind": "sampled", "courage": 1}',
        "[" * 100_000,
    ],
)
def test_a_behaviour_that_cannot_be_is_refused_by_the_name_of_its_entry(text: str) -> None:
    with pytest.raises(ValueError, match=r"metadata learnloop\.behaviour"):
        policy.behaviour_of({policy.BEHAVIOUR: text}, continuous=False)


def test_epsilon_greedy_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="needs discrete actions"):
        policy.behaviour_of({policy.BEHAVIOUR: '{"kind": "epsilon-greedy", "epsilon": 0.1}'}, continuous=True)


@pytest.mark.parametrize(
    "change",
    [
        {"low": [0, 0]},
        {"low": [1]},
        {"low": [2]},
        {"low": ["0"]},
        {"low": [math.nan]},
        {"high": [math.inf]},
        {"low": None},
        {"choices": -1},
        {"choices": 1.5},
        {"choices": True},
        {"choices": 10**9},
    ],
)
def test_bounds_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    space = {"low": [0], "high": [1], "choices": 0}
    assert policy.numbers_of({policy.BOUNDS: json.dumps(space)}) == Numbers((0.0,), (1.0,))
    with pytest.raises(ValueError, match=r"metadata learnloop\.bounds"):
        policy.numbers_of({policy.BOUNDS: json.dumps(space | change)})


@pytest.mark.parametrize("text", ["é", "AAAA", "AADAfw=="])
def test_a_memory_that_no_policy_wrote_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match="memory: "):
        policy.read(text, 1)


def test_an_answers_log_probability_is_finite_and_bounded() -> None:
    for log_prob in (math.inf, -math.inf, math.nan, 10_001.0):
        with pytest.raises(ValidationError):
            ActResponse(action=0, log_prob=log_prob, exploration=True, revision="r")


def test_only_a_policy_that_learns_values_says_what_an_action_is_worth() -> None:
    advice = Advice(1, logits=[-3.0, 2.5])
    assert decide(Behaviour(kind="epsilon-greedy", epsilon=0.1), None, advice, lambda: 0.99).q_value == 2.5
    assert decide(Behaviour(kind="epsilon-greedy", epsilon=1.0), None, advice, lambda: 0.0).q_value == -3.0
    assert decide(Behaviour(kind="sampled"), None, advice, lambda: 0.5).q_value is None
    assert decide(Behaviour(kind="greedy"), None, advice, lambda: 0.5).q_value is None
