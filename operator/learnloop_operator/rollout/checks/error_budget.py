"""How often each check may err: analysis.alpha, split over everything that can roll a canary back."""

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout.checks.anchor import anchored
from learnloop_operator.rollout.metrics.registry import type_of

TIMES = 3
"""A bound is asked of the canary, of the other arms of an experiment, and of the promoted arm by counters that begin
anew."""


def claims(analysis: Analysis) -> int:
    """Claims of which one suffices for a rollback: every sequential test, drift check, bound and anchor that
    may act.

    A dry run takes nothing of the budget, nor does a bound of a query whose number of events nobody knows: it is
    compared as it stands.
    """
    own = sum([type_of(metric).claims(metric) for metric in analysis.metrics if not metric.dry_run])
    return own + len(list(anchored(analysis)))


def alpha_of_bound(analysis: Analysis, arms: int = 1) -> float:
    """Chance with which one bound may be called broken though it holds, however often one looks.

    `arms`: so many are asked at a time, of which none may be wronged.
    """
    return analysis.alpha / (max(1, claims(analysis)) * TIMES * arms)
