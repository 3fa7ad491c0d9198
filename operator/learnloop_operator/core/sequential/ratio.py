"""Is one arm's mean certainly beyond a bar that moves with the other arm's?

`bar` is any map of the reference's mean that is made of straight pieces. The product of both arms' Beta mixtures
(interval.py) is an e-process for their pair of means; what is left of it at the likeliest pair on the bar speaks
against all pairs on the good side of it, however often one looks.
"""

from collections.abc import Sequence

from learnloop_operator.core.sequential.betting import BISECTIONS, Counts
from learnloop_operator.core.sequential.interval import log_likelihood, mixture

EDGE = 1e-9
"""Means nearer to 0 and 1 are not told apart; it makes the null likelier, which is careful."""

Pair = tuple[float, float]


def evidence_beyond(subject: Counts, reference: Counts, bar: Sequence[tuple[Pair, Pair]]) -> float:
    """Log e-value against "the pair of means is on the other side of `bar` than it looks", 0 where nothing speaks.

    `bar`: straight pieces from (subject's mean, reference's mean) to another such pair, in 0..1. The caller knows that
    what was seen lies beyond the bar: the likelihood falls in every direction from there (its logarithm is concave),
    so that of all pairs on the good side the likeliest lies on the bar itself.
    """
    if not (subject.possible and reference.possible and subject.n > 0.0 and reference.n > 0.0 and bar):
        return 0.0
    against = max(_most(subject, reference, *piece) for piece in bar)
    return max(0.0, mixture(subject) + mixture(reference) - against)


def difference_evidence(a: Counts, b: Counts, margin: float) -> float:
    """Log e-value against "the mean of `a` is at most that of `b` plus `margin`", 0 where nothing speaks against it.

    Less is lost than by setting two intervals apart. -1 < margin < 1.
    """
    if not (-1.0 < margin < 1.0 and a.n > 0.0 and b.n > 0.0 and a.total / a.n > b.total / b.n + margin):
        return 0.0
    low, high = max(0.0, -margin), min(1.0, 1.0 - margin)
    return evidence_beyond(a, b, [((low + margin, low), (high + margin, high))])


def _most(subject: Counts, reference: Counts, start: Pair, end: Pair) -> float:
    """The greatest log-likelihood on a straight piece: it is concave there, so its slope falls through 0 once."""
    arms = tuple(zip((subject, reference), start, end, strict=True))
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        slope = 0.0
        for seen, a, b in arms:
            mean = _inside(a + middle * (b - a))
            slope += (b - a) * (seen.total / mean - (seen.n - seen.total) / (1.0 - mean))
        if slope > 0.0:
            low = middle
        else:
            high = middle
    return sum(log_likelihood(seen, _inside(a + 0.5 * (low + high) * (b - a))) for seen, a, b in arms)


def _inside(mean: float) -> float:
    return min(1.0 - EDGE, max(EDGE, mean))
