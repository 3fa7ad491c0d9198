"""The error budget: how often each check may roll back a healthy arm, as parts of analysis.alpha.

Tests, bounds and ratios share one alpha. UNFINISHED of another is for episodes that do not end, FAST_LANE of it for the
fast lane, and each step in shadow has one (judging/shadow_step.py). So without such a step it is 1.6 alpha in all. A
pass needs every test, so each test may use the whole alpha for it (statistics/canary_against_stable.py).
"""

import math

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout.checks.metric_types import type_of
from learnloop_operator.statistics.canary_against_stable import Bars, bars

UNFINISHED = 0.5
FAST_LANE = 0.1
TIMES = 3
"""A bound is asked of the canary, of the other arms of an experiment, and of the promoted arm by counters that start
over. Whether episodes end is asked of the canary, of the promoted arm, and of either again when counters start over."""


def rollback_checks(analysis: Analysis) -> int:
    """Sequential tests and bounds, each of which may roll back alone; at least 1.

    A query is compared directly and takes nothing of the budget.
    """
    return max(1, sum([type_of(metric).rollback_checks(metric) for metric in analysis.metrics]))


def bars_of(analysis: Analysis) -> Bars:
    return bars(analysis.alpha, rollback_checks(analysis))


def alpha_of_bound(analysis: Analysis, arms: int = 1) -> float:
    """Chance with which each bound of so many arms may be called broken though it holds, however often one looks."""
    return analysis.alpha / (rollback_checks(analysis) * TIMES * arms)


def alpha_of_unfinished(analysis: Analysis, arms: int = 1) -> float:
    """The same for episodes that do not end."""
    return UNFINISHED * analysis.alpha / (TIMES * arms)


def bar_of_fast_lane(analysis: Analysis, bounds: int, arms: int = 1) -> float:
    """Log e-value at which one of so many bounds of each arm counts as broken beyond doubt."""
    return math.log(max(1, bounds * arms) / (FAST_LANE * analysis.alpha))
