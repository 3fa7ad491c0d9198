"""Confidence sequences: an interval for one arm's mean that holds at all times at once.

For outcomes in 0..1 and any mean m the Beta(1/2, 1/2) mixture of Bernoulli likelihoods over the likelihood of m is an
e-process for m (Robbins 1970; Howard, Ramdas, McAuliffe, Sekhon, arXiv 1810.08240; fractions of a success as in
`betting`). The interval holds the means it does not refute at 1/alpha.
"""

import math

from learnloop_operator.statistics.betting import BISECTIONS, Counts

Interval = tuple[float, float]
EVERYTHING: Interval = (0.0, 1.0)


def mean_interval(seen: Counts, alpha: float, before: Interval = EVERYTHING) -> Interval:
    """The means not refuted by `seen` nor earlier. Given `before`, it never widens; where nothing would be left, which
    under drift can happen, and where the counts are impossible, it stays as it was."""
    if not seen.possible or seen.n <= 0.0:
        return before
    centre = seen.total / seen.n
    low = _edge(seen, alpha, 0.0, centre)
    high = _edge(seen, alpha, 1.0, centre)
    narrowed = (max(low, before[0]), min(high, before[1]))
    return narrowed if narrowed[0] <= narrowed[1] else before


def _edge(seen: Counts, alpha: float, outside: float, inside: float) -> float:
    """The mean nearest to `outside` that is not refuted; the evidence falls on the way to `inside`."""
    averaged = mixture(seen)
    bar = math.log(1.0 / alpha)
    for _ in range(BISECTIONS):
        middle = 0.5 * (outside + inside)
        if averaged - log_likelihood(seen, middle) < bar:
            inside = middle
        else:
            outside = middle
    return outside


def mixture(seen: Counts) -> float:
    """Log of the likelihood, averaged over all means by the Beta(1/2, 1/2) weights."""
    return _log_beta(seen.total + 0.5, seen.n - seen.total + 0.5) - _log_beta(0.5, 0.5)


def log_likelihood(seen: Counts, mean: float) -> float:
    """Log of the Bernoulli likelihood of `mean` in 0..1; minus infinity where it is impossible."""
    return _times_log(seen.total, mean) + _times_log(seen.n - seen.total, 1.0 - mean)


def _times_log(count: float, rate: float) -> float:
    if count <= 0.0:
        return 0.0
    return count * math.log(rate) if rate > 0.0 else -math.inf


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
