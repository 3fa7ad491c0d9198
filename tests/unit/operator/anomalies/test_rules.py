"""Anomalies: rules that hold for any sign and scale of returns."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.core.anomalies import LEAST, TAIL, find, rank_sum
from testing.simulation.agent_returns import WRONG, look, planted, quiet


def noise(count: int, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(0.0, 1.0) for _ in range(count)]


def dropped(by: float) -> list[float]:
    return [*noise(190), *(value - by for value in noise(10, 2))]


@pytest.mark.parametrize("kind", sorted(WRONG))
def test_what_goes_wrong_is_found(kind: str) -> None:
    draw = random.Random(7)
    assert [look(planted(kind, draw)).after is None for _ in range(10)].count(True) == 0


def test_quiet_agents_of_any_sign_and_scale_raise_no_alarm() -> None:
    draw = random.Random(3)
    assert sum(look(quiet(draw)).false_alarm for _ in range(30)) <= 1


@given(shift=st.floats(-1e6, 1e6), scale=st.floats(1e-3, 1e6))
def test_neither_shift_nor_scale_changes_what_is_found(shift: float, scale: float) -> None:
    whole = [float(round(value * 8)) for value in dropped(6.0)]  # few enough digits that rounding breaks no tie
    moved = [round(shift) * 2.0**-10 + 2.0 ** round(math.log2(scale)) * value for value in whole]
    assert {item.anomaly for item in find(moved).findings} == {item.anomaly for item in find(whole).findings}


def test_returns_below_zero_are_judged_like_others() -> None:
    negative, quiet_one = [value - 100.0 for value in dropped(6.0)], [value - 100.0 for value in noise(TAIL)]
    assert [item.anomaly for item in find(negative).findings] == ["SuddenDrop"]
    assert find(quiet_one).findings == ()


def test_a_drop_is_seen_however_many_episodes_lie_between_two_looks() -> None:
    for late in (10, 60, 150):
        returns = [*noise(300), *(value - 5.0 for value in noise(late, 2))]
        assert any(item.anomaly == "SuddenDrop" for item in find(returns).findings)


def test_an_agent_that_learns_and_spreads_is_no_anomaly() -> None:
    draw = random.Random(5)
    rising = [index / 10.0 + draw.gauss(0.0, 0.1 + index / 50.0) for index in range(TAIL)]
    assert find(rising).findings == ()


def test_too_few_returns_say_nothing() -> None:
    assert find([0.0] * (LEAST - 1)).findings == ()
    assert find([]).returns == 0


def test_a_few_episodes_that_end_early_are_no_drop_where_most_reach_the_limit() -> None:
    unlucky = [500.0] * 189 + [400.0] + [500.0, 100.0, 100.0, 500.0, 100.0, 100.0, 500.0, 100.0, 100.0, 500.0]
    assert find(unlucky).findings == ()
    assert [item.anomaly for item in find([500.0] * 190 + [100.0] * 10).findings] == ["SuddenDrop"]


def test_equal_returns_are_quiet() -> None:
    assert find([7.0] * 300).findings == ()


def test_ranks_of_separated_samples() -> None:
    assert rank_sum([1.0, 2.0], [3.0, 4.0]) == -rank_sum([3.0, 4.0], [1.0, 2.0])
    assert rank_sum([1.0] * 5, [1.0] * 9) == 0.0
    # By hand: U is 3.5 of 20, the tied twos and threes take 30/72 off the variance, so (3.5 - 10) / 3.9966.
    assert rank_sum([1.0, 2.0, 3.0, 3.0], [3.0, 4.0, 5.0, 6.0, 2.0]) == pytest.approx(-1.6264, abs=1e-4)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308])
def test_a_look_at_what_is_no_return_ends(odd: float) -> None:
    mixed = [odd, -odd, 1.0, odd] * 50
    for returns in ([odd] * 200, mixed, [odd] * 100 + [-odd] * 100):
        assert find(returns).returns == 200
