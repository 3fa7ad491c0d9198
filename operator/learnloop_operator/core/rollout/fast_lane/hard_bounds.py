"""The hard bounds that the fast lane asks of an arm's own counters.

Only min and max of the analysis and the share of failing requests are asked, or, of an arm in shadow, the bars of its
step; no comparison with stable: a bound needs one arm.
"""

import math
from collections.abc import Iterable, Iterator

from learnloop_api.kinds.analysis import Analysis, MetricThreshold
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.shadow import ShadowCheck
from learnloop_operator.core.rollout.checks.shadow_checks import SLOW_SHARE
from learnloop_operator.core.rollout.fast_lane.breach_alarms import Bound, Questions

BUDGET = 0.1
"""Share of analysis.alpha that all bounds of a rollout, or of all arms of an
experiment, may err with together, beside the sequential tests' alpha."""
SLOW = 0.1
"""A bound of a latency is grossly broken when so many more of the requests are slower than its quantile allows: one
pause that a few requests met together is no breach."""


def of_episodes(spec: ModelDeploymentSpec, weight: int, arms: int = 1) -> Questions:
    """Of each of `arms` arms on trial that gets `weight` percent of the episodes."""
    return _asked(spec, _distinct(of_analysis(spec.analysis)), arms, weight > 0)


def of_copies(spec: ModelDeploymentSpec, bars: ShadowCheck) -> Questions:
    """Of an arm in shadow."""
    return _asked(spec, _distinct(_of_shadow(bars)), 1, True)


def of_analysis(analysis: Analysis) -> Iterator[Bound]:
    """Every hard bound of the analysis that one arm's counters can break."""
    errors = analysis.fast_lane.max_request_errors
    yield Bound("requests", errors, False, errors, 0)
    for metric in analysis.metrics:
        yield from _of_metric(metric)


def _asked(spec: ModelDeploymentSpec, bounds: tuple[Bound, ...], arms: int, exposed: bool) -> Questions:
    """A rollout's shadow steps and its other steps share the budget, and so do the arms of an experiment."""
    shadows = [bound for step in spec.rollout.steps if step.shadow for bound in _of_shadow(step.shadow)]
    claims = len(_distinct((*of_analysis(spec.analysis), *shadows)))
    return Questions(bounds, math.log(max(1, claims * arms) / (BUDGET * spec.analysis.alpha)), exposed)


def _distinct(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    """Those that can be broken, each claim once."""
    return tuple({bound.claim: bound for bound in bounds if 0.0 <= bound.share < 1.0}.values())


def _of_shadow(bars: ShadowCheck) -> Iterator[Bound]:
    yield Bound("copies failed", bars.max_error_rate, False, bars.max_error_rate, 0)
    if bars.max_latency_seconds is not None:
        yield Bound("copies latency", bars.max_latency_seconds, False, SLOW_SHARE + SLOW, 0)
    if bars.min_agreement is not None:
        yield Bound("agreement", bars.min_agreement, True, 1.0 - bars.min_agreement, 0)


def _of_metric(metric: MetricThreshold) -> Iterator[Bound]:
    if metric.dry_run or metric.type == "promql" or metric.type == "drift":
        return
    if metric.type == "latency":
        if metric.max is not None:
            share = 1.0 - (metric.quantile or 0.99) + SLOW
            yield Bound("latency", metric.max, False, share, metric.min_episodes)
        return
    if metric.type == "return" and metric.return_range is None:
        return  # a mean that may be anything is refuted by no number of episodes
    where = metric.return_range if metric.type == "return" else None
    low, high = (where.lowest, where.highest) if where else (0.0, 1.0)
    for limit, is_low in ((metric.min, True), (metric.max, False)):
        if limit is not None and high > low:
            part = (limit - low) / (high - low)
            share = 1.0 - part if is_low else part
            yield Bound(metric.type, limit, is_low, share, metric.min_episodes, (low, high))
