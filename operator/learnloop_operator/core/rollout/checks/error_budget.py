"""Who may err how often: analysis.alpha, split over everything that can take a canary back."""

from learnloop_api.kinds.analysis import Analysis, MetricThreshold

TIMES = 3
"""A bound is asked of the canary, of the other arms of an experiment, and of the promoted arm by counters that begin
anew."""


def claims(analysis: Analysis) -> int:
    """Claims of which one suffices for a rollback: every sequential test, drift check and bound that may act.

    A dry run takes nothing of the budget, nor does a bound of a query whose number of events nobody knows: it is
    compared as it stands.
    """
    return sum([_claims_of(metric) for metric in analysis.metrics if not metric.dry_run])


def alpha_of_bound(analysis: Analysis, arms: int = 1) -> float:
    """Chance with which one bound may be called broken though it holds, however often one looks.

    `arms`: so many are asked at a time, of which none may be wronged.
    """
    return analysis.alpha / (max(1, claims(analysis)) * TIMES * arms)


def is_counted(metric: MetricThreshold) -> bool:
    """Whether it is known how many outcomes are behind the metric's number: then its bounds can be always valid."""
    return metric.type != "promql" or metric.test == "sequential"


def _claims_of(metric: MetricThreshold) -> int:
    if metric.type == "drift":
        return 1
    certain = 4 - (metric.min, metric.max, metric.min_ratio, metric.max_ratio).count(None) if is_counted(metric) else 0
    return certain + (metric.test == "sequential")
