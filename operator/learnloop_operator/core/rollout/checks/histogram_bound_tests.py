"""Bounds of what has no bounded mean: quantiles of latency, and returns of any size.

A quantile above a limit means that more than the usual share of the requests is slower than it: a rate, of which
nothing has to be assumed. As many requests as an average episode of the arm has count as one (sequential/latency.py).

No number of episodes bounds the mean of returns that may be anything. So the histogram has to agree with the mean: a
bound is broken when certainly more than half of the episodes are on its wrong side.
"""

from learnloop_operator.core.rollout.checks.confidence import Certainty, confidence
from learnloop_operator.core.rollout.evidence.arm_evidence import ArmEvidence, number
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.interval import Interval, mean_interval
from learnloop_operator.core.sequential.latency import Histogram, finite_bounds, total

HALF = 0.5


def latency_beyond(arm: ArmEvidence, quantile: float, limit: float, low: bool, alpha: float) -> Certainty:
    """Whether the arm's quantile certainly is below (`low`) or above `limit` seconds.

    The bound of the histogram is taken on the careful side of the limit.
    """
    bound = _nearest(arm.latency, limit, low)
    if bound is None:
        return Certainty(False, f"the histogram has no bound {'up to' if low else 'from'} {number(limit)} s")
    least, most = _within(arm, bound, alpha)
    if low:
        text = f"certainly {least:.1%} of its requests are that fast, {quantile:.1%} needed ({confidence(alpha)})"
        return Certainty(least > quantile, text)
    slow = 1.0 - most
    allowed = 1.0 - quantile
    text = f"certainly {slow:.1%} of its requests are slower, {allowed:.1%} allowed ({confidence(alpha)})"
    return Certainty(slow > allowed, text)


def returns_beyond(returns: Histogram, limit: float, low: bool, alpha: float) -> Certainty:
    """Whether certainly more than half of the episodes return less (`low`) or more than `limit`."""
    bound = _nearest(returns, limit, low)
    least = 0.0
    if bound is not None:
        n = total(returns)
        wrong = returns[bound] if low else n - returns[bound]
        least = mean_interval(Counts(n, wrong), alpha)[0]
    side = "less" if low else "more"
    text = f"certainly {least:.0%} of its episodes return {side}, {HALF:.0%} needed ({confidence(alpha)})"
    return Certainty(least > HALF, text)


def _within(arm: ArmEvidence, bound: float, alpha: float) -> Interval:
    """The share of the arm's requests that take no longer than `bound`."""
    requests = total(arm.latency)
    block = max(1.0, requests / max(1, arm.episodes))
    return mean_interval(Counts(requests / block, arm.latency[bound] / block), alpha)


def _nearest(histogram: Histogram, limit: float, low: bool) -> float | None:
    """The last bound up to `limit` (`low`), or the first one from it on."""
    bounds = finite_bounds(histogram)
    if low:
        return next((bound for bound in reversed(bounds) if bound <= limit), None)
    return next((bound for bound in bounds if bound >= limit), None)
