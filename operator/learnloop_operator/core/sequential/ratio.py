"""Is one arm's mean certainly beyond a bar that moves with the other arm's?

`bar` is any map of the reference's mean that is made of straight pieces. The product of both arms' Beta mixtures
(interval.py) is an e-process for their pair of means; what is left of it at the likeliest pair on the bar speaks
against all pairs on the good side of it, however often one looks.
"""

from collections.abc import Sequence

from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.interval import log_likelihood, mixture

THIRDS = 64
"""Each cut leaves two thirds of a piece: together next to nothing of it."""
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


def _most(subject: Counts, reference: Counts, start: Pair, end: Pair) -> float:
    """The greatest log-likelihood on a straight piece; it is concave there, so cutting thirds off finds it."""

    def at(part: float) -> float:
        p, q = (min(1.0 - EDGE, max(EDGE, a + part * (b - a))) for a, b in zip(start, end, strict=True))
        return log_likelihood(subject, p) + log_likelihood(reference, q)

    low, high = 0.0, 1.0
    for _ in range(THIRDS):
        third = (high - low) / 3.0
        if at(low + third) < at(high - third):
            low += third
        else:
            high -= third
    return max(at(low), at(high))
