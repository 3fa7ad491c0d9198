"""The bounds of gates: right against what is known exactly, and they cover."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.statistics.fixed_sample_bounds import (
    gap_upper,
    paired_rate_upper,
    paired_score_upper,
    rate_upper,
)

DRAWS = 2000


@pytest.mark.parametrize(("n", "rate"), [(59, 0.05), (149, 0.02), (299, 0.01)])
def test_no_failure_in_so_many_answers_proves_the_rate_that_tables_give(n: int, rate: float) -> None:
    assert rate_upper(0, n, 0.95) <= rate < rate_upper(0, n - 1, 0.95)


@pytest.mark.parametrize(
    ("failures", "n", "bound"),
    # The 0.95 quantile of Beta(k + 1, n - k)
    [(1, 10, 0.394163), (3, 300, 0.025641), (10, 100, 0.163718), (99, 100, 0.999487), (5, 1000, 0.010484)],
)
def test_the_rate_bound_is_the_quantile_of_the_beta_distribution(failures: int, n: int, bound: float) -> None:
    assert rate_upper(failures, n, 0.95) == pytest.approx(bound, abs=2e-6)


@given(st.integers(0, 300), st.integers(1, 300), st.floats(0.5, 0.999))
def test_a_rate_bound_lies_above_what_was_seen_and_rises_with_failures(failures: int, n: int, level: float) -> None:
    failures = min(failures, n)
    bound = rate_upper(failures, n, level)
    assert failures / n <= bound <= 1.0
    assert failures == 0 or rate_upper(failures - 1, n, level) <= bound


def test_nothing_asked_proves_nothing() -> None:
    assert rate_upper(0, 0, 0.95) == paired_rate_upper(0, 0, 0, 0.95) == paired_score_upper([], 0.95) == 1.0
    assert gap_upper([], 0.95)[0] == 1.0


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_rate_bound_covers_at_least_as_often_as_it_says(rate: float) -> None:
    draw = random.Random(1)
    bounds = {count: rate_upper(count, 150, 0.95) for count in range(151)}
    covered = sum(bounds[sum(draw.random() < rate for _ in range(150))] >= rate for _ in range(DRAWS))
    assert covered / DRAWS >= 0.935


@pytest.mark.parametrize(("worse", "better"), [(0.02, 0.02), (0.10, 0.10), (0.08, 0.03)])
def test_the_paired_bound_covers_the_true_difference(worse: float, better: float) -> None:
    draw, covered = random.Random(2), 0
    for _ in range(600):
        differences = [draw.random() for _ in range(200)]
        lost, won = sum(x < worse for x in differences), sum(worse <= x < worse + better for x in differences)
        covered += paired_rate_upper(lost, won, 200, 0.95) >= worse - better
    assert covered / 600 >= 0.93


@given(st.integers(0, 60), st.integers(0, 60), st.integers(120, 400))
def test_a_paired_bound_lies_above_what_was_seen_and_rises_with_losses(worse: int, better: int, n: int) -> None:
    bound = paired_rate_upper(worse, better, n, 0.95)
    assert (worse - better) / n <= bound <= 1.0
    assert bound <= paired_rate_upper(worse + 1, better, n, 0.95) + 1e-12


def test_equal_answers_to_equal_tasks_prove_a_small_difference() -> None:
    assert paired_rate_upper(0, 0, 200, 0.95) < 0.02
    assert paired_score_upper([0.0] * 200, 0.95) < 0.02


@pytest.mark.parametrize("skew", [0.5, 0.05])
def test_the_bound_of_scores_covers_the_true_mean(skew: float) -> None:
    draw, covered = random.Random(3), 0
    truth = 0.4 * skew - 0.1 * (1 - skew)
    for _ in range(400):
        covered += paired_score_upper([0.4 if draw.random() < skew else -0.1 for _ in range(150)], 0.95) >= truth
    assert covered / 400 >= 0.95


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.floats(0.6, 0.99))
def test_a_bound_of_scores_lies_between_the_mean_and_one(scores: list[float], level: float) -> None:
    bound = paired_score_upper(scores, level)
    assert max(0.0, sum(scores) / len(scores)) - 1e-9 <= bound <= 1.0
    levels = [paired_score_upper(scores, step) for step in (0.6, 0.8, 0.95)]
    assert all(low <= high + 1e-12 for low, high in pairwise(levels))


def test_the_widest_gap_is_named_by_its_groups() -> None:
    rows = [[0, 0, 1]] * 40 + [[0, 0, 0]] * 60
    bound, (one, other) = gap_upper(rows, 0.95)
    assert one == 2
    assert other in (0, 1)
    assert 0.4 < bound < 0.6
    assert gap_upper([[0, 0, 0]] * 200, 0.95)[0] < 0.05
