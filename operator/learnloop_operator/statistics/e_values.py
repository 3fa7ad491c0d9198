"""Bets on which of two arms is better: what one batch of outcomes is worth as evidence (its e-value), and intervals.

Every outcome is a number in 0..1. The null says that in the batch the mean of arm `a` is at most the mean of arm `b`
plus a margin. A bet names two means (p_a, p_b) *before* the batch is seen; its e-value is the Bernoulli likelihood of
the bet over that of (q_a, q_b). That is the point of the null nearest to the bet in Kullback-Leibler divergence,
weighted by the two sample sizes of the batch.

Why its expectation is at most 1 under the whole null: for true means (m_a, m_b) it is
(1 + (m_a - q_a) c_a)^n_a * (1 + (m_b - q_b) c_b)^n_b with c = (p - q) / (q (1 - q)). The logarithm is concave in
(m_a, m_b) and 0 at (q_a, q_b). Its gradient there is minus that of the divergence which (q_a, q_b) minimises over the
null, so it is at most 0 on all of it. The means may drift from batch to batch, together or apart, as long as each batch
is within the null; the sizes may follow from anything but the outcomes of the batch itself.

Outcomes between 0 and 1 count as fractions of a success: log(1 + (x - q) c) is concave in x, hence at least the chord
x log(p/q) + (1 - x) log((1-p)/(1-q)), which needs the sum of the outcomes only. That is what a counter can tell.
"""

import math
from dataclasses import dataclass

BISECTIONS = 48
"""Halvings of an interval no longer than 1: the projection is exact to the last bits of a float."""


@dataclass(frozen=True, slots=True)
class Counts:
    """`n` outcomes that add up to `total`; each lies in 0..1. Counters that are read at an angle give fractions."""

    n: float = 0.0
    total: float = 0.0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(self.n + other.n, self.total + other.total)

    def at_most(self, most: float) -> "Counts":
        """So many outcomes of the same mean, where there are more: more are not independent."""
        return self if self.n <= most else Counts(most, self.total * most / self.n)

    def minus(self, other: "Counts") -> "Counts":
        """Counts after `other`."""
        return Counts(self.n - other.n, self.total - other.total)

    @property
    def mean(self) -> float:
        """The mean outcome; 0 without any."""
        return self.total / self.n if self.n > 0.0 else 0.0

    @property
    def possible(self) -> bool:
        """Whether any outcomes at all can have given these numbers."""
        return math.isfinite(self.n) and math.isfinite(self.total) and 0.0 <= self.total <= self.n


NONE = Counts()


def log_e(a: Counts, b: Counts, p_a: float, p_b: float, margin: float) -> float:
    """Log e-value of one batch against `mean(a) <= mean(b) + margin`, for the bet (p_a, p_b) made before it.

    The bets lie strictly between 0 and 1, the margin between -1 and 1. A bet within the null wins and loses nothing,
    nor does a batch that lacks one of the arms.
    """
    if p_a <= p_b + margin or a.n <= 0.0 or b.n <= 0.0:
        return 0.0
    q_a, q_b = nearest(a.n, b.n, p_a, p_b, margin)
    return gain(a, p_a, q_a) + gain(b, p_b, q_b)


def nearest(n_a: float, n_b: float, p_a: float, p_b: float, margin: float) -> tuple[float, float]:
    """The point on `q_a = q_b + margin` with the least `n_a KL(p_a|q_a) + n_b KL(p_b|q_b)`.

    Both sizes are positive. The derivative along the line rises, so halving finds its only zero.
    """
    n_a, n_b = n_a / (n_a + n_b), n_b / (n_a + n_b)  # sizes next to nothing would lose the products below
    if margin == 0.0:
        q = n_a * p_a + n_b * p_b
        return q, q
    low, high = max(0.0, -margin), min(1.0, 1.0 - margin)
    for _ in range(BISECTIONS):
        q = 0.5 * (low + high)
        up = q + margin
        if n_a * (up - p_a) / (up * (1.0 - up)) + n_b * (q - p_b) / (q * (1.0 - q)) > 0.0:
            high = q
        else:
            low = q
    q = 0.5 * (low + high)
    return q + margin, q


def divergence(p: float, q: float) -> float:
    """Kullback-Leibler divergence of Bernoulli(q) from Bernoulli(p), both strictly between 0 and 1."""
    return p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))


def gain(counts: Counts, p: float, q: float) -> float:
    """Log likelihood ratio of mean `p` over mean `q`, both strictly between 0 and 1, for these outcomes."""
    return counts.total * math.log(p / q) + (counts.n - counts.total) * math.log((1.0 - p) / (1.0 - q))


# Confidence sequences: an interval for one arm's mean that holds at all times together.
#
# For outcomes in 0..1 and any mean m the Beta(1/2, 1/2) mixture of Bernoulli likelihoods over the likelihood of m is an
# e-process for m (Robbins 1970; Howard, Ramdas, McAuliffe, Sekhon, arXiv 1810.08240; fractions of a success as in
# `log_e`). The interval holds the means it does not refute at 1/alpha.


Interval = tuple[float, float]
EVERYTHING: Interval = (0.0, 1.0)


def mean_interval(counts: Counts, alpha: float) -> Interval:
    """The means that `counts` does not refute; all where the counts are impossible."""
    if not counts.possible or counts.n <= 0.0:
        return EVERYTHING
    centre = counts.total / counts.n
    return _edge(counts, alpha, 0.0, centre), _edge(counts, alpha, 1.0, centre)


def _edge(counts: Counts, alpha: float, outside: float, inside: float) -> float:
    """The mean nearest to `outside` that is not refuted; the evidence falls on the way to `inside`."""
    averaged = mixture(counts)
    bar = math.log(1.0 / alpha)
    for _ in range(BISECTIONS):
        middle = 0.5 * (outside + inside)
        if averaged - log_likelihood(counts, middle) < bar:
            inside = middle
        else:
            outside = middle
    return outside


def mixture(counts: Counts) -> float:
    """Log of the likelihood, averaged over all means by the Beta(1/2, 1/2) weights."""
    return _log_beta(counts.total + 0.5, counts.n - counts.total + 0.5) - _log_beta(0.5, 0.5)


def log_likelihood(counts: Counts, mean: float) -> float:
    """Log of the Bernoulli likelihood of `mean` in 0..1; minus infinity where it is impossible."""
    return _times_log(counts.total, mean) + _times_log(counts.n - counts.total, 1.0 - mean)


def _times_log(count: float, rate: float) -> float:
    if count <= 0.0:
        return 0.0
    return count * math.log(rate) if rate > 0.0 else -math.inf


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
