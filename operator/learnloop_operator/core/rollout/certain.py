"""Is a bound certainly broken? Always valid: look as often as you like, and take a good arm back once in 1/alpha.

What was seen lies beyond the bound already; the question here is whether chance could have done it. The answer counts
outcomes, so it is as sure as their number allows: a confidence sequence of one arm's mean (sequential/interval.py)
for min and max, the least evidence against any pair of means within the ratio (sequential/ratio.py) for ratios. For
latency, and returns without a returnRange, whose mean nothing bounds, histograms answer (certain_histogram.py).
"""

from collections.abc import Iterator
from itertools import pairwise

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout import certain_histogram as by_histogram
from learnloop_operator.core.rollout.certainty import Certainty, confidence, weighed
from learnloop_operator.core.rollout.evidence import P99, ArmEvidence, number
from learnloop_operator.core.rollout.measure import Measure, outcomes
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.interval import mean_interval
from learnloop_operator.core.sequential.ratio import Pair, evidence_beyond


def beyond_bound(metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float) -> Certainty:
    """Whether the arm certainly is below `limit` (`low`: it is a minimum) or above it."""
    if metric.type == "latency":
        return by_histogram.latency_beyond(arm, metric.quantile or P99, limit, low, alpha)
    if _unbounded(metric):
        return by_histogram.returns_beyond(arm.returns, limit, low, alpha)
    seen, (start, end) = _values(metric, arm), _span(metric)
    least, most = (start + part * (end - start) for part in (mean_interval(seen, alpha) if seen else (0.0, 1.0)))
    broken = most < limit if low else least > limit
    certain = f"at most {number(most)}" if low else f"at least {number(least)}"
    return Certainty(broken, f"certainly {certain} ({confidence(alpha)})")


def beyond_ratio(
    metric: MetricThreshold, subject: ArmEvidence, reference: ArmEvidence, ratio: float, low: bool, alpha: float
) -> Certainty:
    """Whether the subject certainly is below `ratio` times the reference (`low`: it is a minimum) or above it."""
    if metric.type == "latency":
        return by_histogram.latency_ratio(subject, reference, metric.quantile or P99, ratio, low, alpha)
    side = "below" if low else "above"
    if _unbounded(metric):
        if not subject.returns or not reference.returns:
            return Certainty(False, "the histogram of returns is not there")
        evidence = by_histogram.returns_apart(subject.returns, reference.returns, low)
        return weighed(evidence, alpha, f"its returns lie {side} those")
    one, other = _values(metric, subject), _values(metric, reference)
    bar = list(_bar(ratio, *_span(metric)))
    return weighed(evidence_beyond(one, other, bar) if one and other else 0.0, alpha, f"{side} the bar")


def _unbounded(metric: MetricThreshold) -> bool:
    return metric.type == "return" and metric.return_range is None


def _values(metric: MetricThreshold, arm: ArmEvidence) -> Counts | None:
    """Outcomes on the metric's own scale: of errors the bad ones count. Events of an average episode count as one."""
    events = arm.events.get(metric.name) if metric.type == "promql" else None
    block = max(1.0, events.n / max(1, arm.episodes)) if events else 1.0
    found = outcomes(metric, arm, Measure(None, block))
    return Counts(found.n, found.n - found.total) if found and metric.type == "errors" else found


def _span(metric: MetricThreshold) -> tuple[float, float]:
    where = metric.return_range if metric.type == "return" else None
    return (where.lowest, where.highest) if where else (0.0, 1.0)


def _bar(ratio: float, start: float, end: float) -> Iterator[tuple[Pair, Pair]]:
    """Where the subject's mean is `base + (ratio - 1) * |base|`: straight pieces, in shares of the range."""
    bases = [start, 0.0, end] if start < 0.0 < end else [start, end]
    for first, last in pairwise(bases):
        at_first, at_last = (base + (ratio - 1.0) * abs(base) for base in (first, last))
        rise = at_last - at_first
        if rise:  # the part of the piece that the subject's mean can reach
            low, high = sorted((edge - at_first) / rise for edge in (start, end))
            low, high = max(0.0, low), min(1.0, high)
        else:
            low, high = (0.0, 1.0) if start <= at_first <= end else (1.0, 0.0)
        if low <= high:
            ends = [(at_first + part * rise, first + part * (last - first)) for part in (low, high)]
            one, other = (tuple((value - start) / (end - start) for value in pair) for pair in ends)
            yield (one[0], one[1]), (other[0], other[1])
