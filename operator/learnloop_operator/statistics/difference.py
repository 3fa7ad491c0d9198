"""Is one mean certainly above another by more than a margin, whatever the times at which both were counted?

The product of both Beta mixtures (interval.py) is an e-process for their pair of means; what is left of it at the
likeliest pair on the bar speaks against all pairs on the good side of it, however often one looks. It takes both means
for constant: for what a world that changes does to both arms alike, compare batches of the same time (ratio.py).
"""

from learnloop_operator.statistics.betting import BISECTIONS, Counts
from learnloop_operator.statistics.interval import log_likelihood, mixture

EDGE = 1e-9
"""Means nearer to 0 and 1 are not told apart; it makes the null likelier, which is careful."""


def difference_evidence(a: Counts, b: Counts, margin: float) -> float:
    """Log e-value against "the mean of `a` is at most that of `b` plus `margin`", 0 where nothing speaks against it.

    Less is lost than by setting two intervals apart. -1 < margin < 1. What was seen lies beyond the bar: the likelihood
    falls in every direction from there (its logarithm is concave), so that of all pairs on the good side the likeliest
    lies on the bar itself.
    """
    if not (a.possible and b.possible and a.n > 0.0 and b.n > 0.0 and -1.0 < margin < 1.0):
        return 0.0
    if not a.total / a.n > b.total / b.n + margin:
        return 0.0
    return max(0.0, mixture(a) + mixture(b) - _most(a, b, margin))


def _most(a: Counts, b: Counts, margin: float) -> float:
    """The greatest log-likelihood where the means are `margin` apart: it is concave there, its slope falls through 0
    once."""
    low, high = max(0.0, -margin), min(1.0, 1.0 - margin)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if _slope(a, middle + margin) + _slope(b, middle) > 0.0:
            low = middle
        else:
            high = middle
    middle = 0.5 * (low + high)
    return log_likelihood(a, _inside(middle + margin)) + log_likelihood(b, _inside(middle))


def _slope(seen: Counts, mean: float) -> float:
    mean = _inside(mean)
    return seen.total / mean - (seen.n - seen.total) / (1.0 - mean)


def _inside(mean: float) -> float:
    return min(1.0 - EDGE, max(EDGE, mean))
