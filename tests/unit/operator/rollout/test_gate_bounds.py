"""The bounds of gates: right against what is known exactly, and they cover."""

import random

import pytest

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


def test_the_widest_gap_is_named_by_its_groups() -> None:
    rows = [[0, 0, 1]] * 40 + [[0, 0, 0]] * 60
    bound, (one, other) = gap_upper(rows, 0.95)
    assert one == 2
    assert other in (0, 1)
    assert 0.4 < bound < 0.6
    assert gap_upper([[0, 0, 0]] * 200, 0.95)[0] < 0.05
