"""Ratios of two arms at the same time: the bets are fair whatever the world does, and find an arm that is beyond."""

import math
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.ratio import LEVEL, Bar, Row, added, after

UNIT = st.floats(0.0, 1.0)
BARS = st.one_of(
    st.just(LEVEL),
    st.builds(Bar, st.floats(0.1, 3.0)),
    st.builds(Bar, st.floats(0.1, 3.0), st.floats(-9.0, -0.5), st.floats(0.5, 9.0)),
    st.builds(Bar, st.floats(0.1, 3.0), st.floats(-9.0, -2.0), st.floats(-1.9, 0.0)),
)


def chance(n: int, good: int, mean: float) -> float:
    return float(comb(n, good) * mean**good * (1.0 - mean) ** (n - good))


@settings(max_examples=6 * settings().max_examples)
@given(BARS, UNIT, UNIT, UNIT, UNIT, UNIT, st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_an_arm_within_its_bar_gains_nothing_on_average_in_any_world_and_whatever_was_seen(
    bar: Bar, a: float, b: float, seen: float, beside: float, level: float, n: int, mine: int, theirs: int, low: bool
) -> None:
    limit = bar.at(b)
    if (a < limit) if low else (a > limit):
        return
    row, mean = Row(float(n), n * seen, n * beside, level), 0.0
    for good in range(mine + 1):
        for other in range(theirs + 1):
            found = after(row, Counts(mine, good), Counts(theirs, other), bar if low else None, None if low else bar)
            mean += chance(mine, good, a) * chance(theirs, other, b) * math.exp(found.low + found.high)
    assert mean <= 1.0 + 1e-6


def evidence(source: np.random.Generator, arms: list[tuple[float, float]], bar: Bar = LEVEL) -> float:
    """The greatest evidence of "below" over batches of 2 outcomes beside 6, with these means of both arms."""
    row, most = Row(level=arms[0][1]), 0.0
    for mine, theirs in arms:
        batch = Counts(2, float(source.binomial(2, mine))), Counts(6, float(source.binomial(6, theirs)))
        row = after(row, *batch, bar, None)
        most = max(most, row.low)
    return most


@pytest.mark.parametrize("bar", [LEVEL, Bar(0.8)])
def test_equal_arms_in_a_world_that_falls_are_not_called_worse(bar: Bar) -> None:
    source = np.random.default_rng(1)
    world = [(1.0, 1.0)] * 30 + [(0.5, 0.5)] * 60
    assert sum(evidence(source, world, bar) >= math.log(100) for _ in range(300)) <= 3


@pytest.mark.parametrize("bar", [LEVEL, Bar(0.8)])
def test_an_arm_that_is_worse_is_found_although_the_world_falls_meanwhile(bar: Bar) -> None:
    source = np.random.default_rng(2)
    world = [(0.45, 0.95)] * 10 + [(0.25, 0.6)] * 60
    assert sum(evidence(source, world, bar) >= math.log(600) for _ in range(100)) >= 80


def test_an_arm_that_always_fails_is_found_within_a_dozen_episodes() -> None:
    source = np.random.default_rng(3)
    assert all(evidence(source, [(0.0, 0.9)] * 6, Bar(0.8)) >= math.log(600) for _ in range(50))


@given(BARS, UNIT)
def test_the_lines_of_a_bar_are_what_it_is_made_of(bar: Bar, mean: float) -> None:
    ends = [base + rise * mean for rise, base in bar.lines()]
    assert min(abs(end - bar.at(mean)) for end in ends) < 1e-9


def test_what_stable_made_is_weighed_by_the_times_at_which_the_canary_played() -> None:
    row = added(added(Row(), Counts(1, 1), Counts(9, 9)), Counts(9, 4.5), Counts(1, 0.5))
    assert (row.n, row.total, row.beside) == (10, 5.5, 5.5)


COUNTED = st.tuples(st.integers(1, 2_000), UNIT).map(lambda found: Counts(found[0], found[0] * found[1]))


@given(st.floats(0.1, 3.0), UNIT, UNIT, st.integers(0, 5_000), COUNTED, COUNTED, st.booleans())
def test_a_bar_through_the_origin_has_its_nearest_point_by_formula_as_it_has_by_halving(
    ratio: float, seen: float, level: float, n: int, mine: Counts, theirs: Counts, low: bool
) -> None:
    row = Row(float(n), n * seen, n * level, level)
    # A start next to 0 is the same bar, and none through the origin.
    by_formula, by_halving = (
        after(row, mine, theirs, *((bar, None) if low else (None, bar))) for bar in (Bar(ratio), Bar(ratio, 1e-13))
    )
    assert by_formula.low == pytest.approx(by_halving.low, rel=1e-6, abs=1e-3)
    assert by_formula.high == pytest.approx(by_halving.high, rel=1e-6, abs=1e-3)
