"""Interquartile means and probabilities of improvement, where the answer is known."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from learnloop_trainer.statistics import probability_of_improvement, stratified_mean

NORMAL = NormalDist()


def test_the_interquartile_mean_is_taken_over_all_conditions_together() -> None:
    interval = stratified_mean([np.array([0.0, 1.0, 2.0, 3.0]), np.array([100.0, 101.0, 102.0, 103.0])], 0)
    assert interval.value == pytest.approx((2 + 3 + 100 + 101) / 4)
    assert interval.low <= interval.value <= interval.high


def test_a_condition_is_resampled_on_its_own() -> None:
    constant = [np.full(10, float(level)) for level in range(4)]
    interval = stratified_mean(constant, 0)
    assert (interval.low, interval.high) == (interval.value, interval.value)  # pooled resampling would vary


def test_the_probability_of_improvement_of_known_cases() -> None:
    low, high = np.arange(10.0), np.arange(10.0) + 100
    assert probability_of_improvement([high], [low], 0).value == 1.0
    assert probability_of_improvement([low], [high], 0).value == 0.0
    assert probability_of_improvement([low], [low], 0).value == 0.5
    assert probability_of_improvement([high, low], [low, high], 0).value == 0.5
    mixed = probability_of_improvement([np.array([1.0, 3.0])], [np.array([2.0, 3.0])], 0)
    assert mixed.value == (0 + 0 + 1 + 0.5) / 4


def test_a_comparison_without_both_sides_is_refused() -> None:
    with pytest.raises(ValueError, match="both sides under each condition"):
        probability_of_improvement([np.ones(3)], [np.array([])], 0)
    with pytest.raises(ValueError, match="at least one return"):
        stratified_mean([np.array([])], 0)


def test_the_intervals_cover_the_truth_about_95_times_in_100() -> None:
    random, shift, trials = np.random.default_rng(0), 0.5, 300
    truth = NORMAL.cdf(shift / math.sqrt(2))  # P(N(shift, 1) > N(0, 1))
    covered = np.zeros(2)
    for seed in range(trials):
        ours = [random.normal(shift, 1, 40), random.normal(shift, 1, 40)]
        others = [random.normal(0, 1, 40), random.normal(0, 1, 40)]
        chance = probability_of_improvement(ours, others, seed, resamples=300)
        middle = stratified_mean(ours, seed, resamples=300)
        covered += (chance.low <= truth <= chance.high, middle.low <= shift <= middle.high)
    assert (covered / trials > 0.91).all(), covered / trials
    assert (covered / trials < 0.99).all(), covered / trials
