"""Confidence sequences and latencies turned into rates."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from learnloop_operator.statistics.e_values import EVERYTHING, Counts, mean_interval
from learnloop_operator.statistics.latency import bound_of, prompt

INF = math.inf


@settings(max_examples=2 * settings().max_examples)
@given(st.integers(0, 400), st.floats(0, 1))
def test_a_confidence_sequence_holds_the_mean_that_was_seen(n: int, share: float) -> None:
    low, high = mean_interval(Counts(n, n * share), 0.05)
    assert 0.0 <= low <= high <= 1.0
    assert not n or low <= share <= high


def test_it_covers_the_truth_at_all_times_at_once() -> None:
    missed = 0
    for seed in range(60):
        source, successes, low, high = np.random.default_rng(seed), 0, 0.0, 1.0
        for n in range(20, 301, 20):
            successes += int(source.binomial(20, 0.8))
            interval = mean_interval(Counts(n, successes), 0.05)
            low, high = max(low, interval[0]), min(high, interval[1])
        missed += not low <= 0.8 <= high
    assert missed <= 6  # 3 expected at the very most; 7 or more of 60 have a chance of 3 %


def test_numbers() -> None:
    low, high = mean_interval(Counts(1000, 900), 0.05)
    assert (low, high) == pytest.approx((0.862, 0.931), abs=0.001)


@pytest.mark.parametrize("bad", [Counts(math.nan, 1), Counts(5, 6), Counts(-1, 0), Counts()])
def test_impossible_counts_refute_nothing(bad: Counts) -> None:
    assert mean_interval(bad, 0.05) == EVERYTHING


def test_no_outcome_of_a_kind_leaves_its_edge_open() -> None:
    assert mean_interval(Counts(50, 50), 0.05)[1] == 1.0
    assert mean_interval(Counts(50, 0), 0.05)[0] == 0.0


def test_the_quantile_of_stable_becomes_a_bound_and_both_arms_are_counted_at_it() -> None:
    stable = {0.001: 500.0, 0.01: 990.0, 0.1: 999.0, INF: 1000.0}
    assert bound_of(stable, 0.99) == 0.01
    assert prompt({0.01: 40.0, INF: 50.0}, 0.01) == Counts(50.0, 40.0)


def test_a_histogram_without_requests_or_bounds_tells_nothing() -> None:
    assert bound_of({}, 0.99) is None
    assert bound_of({0.1: 0.0, INF: 0.0}, 0.99) is None
    assert bound_of({0.1: math.nan, INF: math.nan}, 0.99) is None
    assert prompt({0.1: 3.0}, 0.1) is None
    assert bound_of({0.1: 5.0, INF: 10.0}, 0.99) == 0.1
