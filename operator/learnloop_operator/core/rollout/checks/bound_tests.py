"""Is a bound certainly broken? Always valid: look as often as you like, and take a good arm back once in 1/alpha.

What was seen lies beyond the bound already; the question here is whether chance could have done it. The answer counts
outcomes, so it is as sure as their number allows: a confidence sequence of one arm's mean (sequential/interval.py)
for min and max, for ratios the bets on batches of both arms of the same time (paired_outcomes.py). For min and max of
latency, and of returns without a returnRange, whose mean nothing bounds, histograms answer
(histogram_bound_tests.py).
"""

import math
from collections.abc import Sequence

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout.checks import histogram_bound_tests as by_histogram
from learnloop_operator.core.rollout.checks.confidence import Certainty, confidence, weighed
from learnloop_operator.core.rollout.checks.metric_outcomes import Measure, outcomes
from learnloop_operator.core.rollout.checks.paired_outcomes import Beside, span, unbounded
from learnloop_operator.core.rollout.evidence.arm_evidence import P99, ArmEvidence, number
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.interval import mean_interval


def beyond_bound(metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float) -> Certainty:
    """Whether the arm certainly is below `limit` (`low`: it is a minimum) or above it."""
    if metric.type == "latency":
        return by_histogram.latency_beyond(arm, metric.quantile or P99, limit, low, alpha)
    if unbounded(metric):
        return by_histogram.returns_beyond(arm.returns, limit, low, alpha)
    seen, (start, end) = _values(metric, arm), span(metric)
    least, most = (start + part * (end - start) for part in (mean_interval(seen, alpha) if seen else (0.0, 1.0)))
    broken = most < limit if low else least > limit
    certain = f"at most {number(most)}" if low else f"at least {number(least)}"
    return Certainty(broken, f"certainly {certain} ({confidence(alpha)})")


def beyond_ratio(metric: MetricThreshold, trial: Beside, low: bool, alpha: float) -> Certainty:
    """Whether the subject certainly is below its ratio to stable of the same time (`low`: it is a minimum) or above."""
    which = "below" if low else "above"
    if metric.type == "latency":
        bound = number(trial.bounds[0]) if trial.bounds else "?"
        side = "more" if not low else "fewer"
        evidence = trial.rows[0].high if low else trial.rows[0].low
        return weighed(evidence, alpha, f"{side} of its requests are slower than {bound} s at the same time")
    if not unbounded(metric):
        row = trial.rows[0]
        return weighed(row.low if low else row.high, alpha, f"{which} the bar at the same time")
    logs = [row.low if low else row.high for row in trial.rows[1:]]
    if not logs:
        return Certainty(False, "the histogram of returns is not there")
    return weighed(_mean(logs), alpha, f"its returns lie {which} those of the same time")


def _mean(logs: Sequence[float]) -> float:
    """Log of the mean of e-values, which is one."""
    top = max(logs)
    return top + math.log(sum(math.exp(item - top) for item in logs) / len(logs))


def _values(metric: MetricThreshold, arm: ArmEvidence) -> Counts | None:
    """Outcomes on the metric's own scale: of errors the bad ones count. Events of an average episode count as one."""
    events = arm.events.get(metric.name) if metric.type == "promql" else None
    block = max(1.0, events.n / max(1, arm.episodes)) if events else 1.0
    found = outcomes(metric, arm, Measure(None, block))
    return Counts(found.n, found.n - found.total) if found and metric.type == "errors" else found
