"""Upper confidence bounds of a fixed sample: of a rate, of a paired difference, of the widest gap between groups.

A gate looks once, at a sample whose size was fixed before, so bounds of a fixed sample hold; the sequential tests of
this package are for what is looked at again and again.
"""

import math
from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import NormalDist

HALVINGS = 60
"""Of an interval no longer than 2: the root is exact to the last bits of a float."""
BOLDEST = 1.9
"""The largest bet: against a mean of at least 1/2, one of 2 could lose everything."""


def rate_upper(failures: int, n: int, confidence: float) -> float:
    """Exact one-sided upper bound of a rate (Clopper and Pearson, Biometrika 26, 1934): the largest rate under which
    so few failures are still as likely as 1 - confidence. 1 without a sample."""
    if n <= 0 or failures >= n:
        return 1.0
    if failures == 0:
        return -math.expm1(math.log1p(-confidence) / n)
    return _root(lambda rate: (1.0 - confidence) - _at_most(failures, n, rate), failures / n, 1.0)


def _at_most(failures: int, n: int, rate: float) -> float:
    """Probability of at most `failures` of n, each with this rate: summed from the largest term down, in logarithms."""
    if rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 0.0
    terms = [
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(rate)
        + (n - k) * math.log1p(-rate)
        for k in range(failures + 1)
    ]
    top = max(terms)
    return math.exp(top) * math.fsum(math.exp(term - top) for term in terms)


def paired_rate_upper(worse: int, better: int, n: int, confidence: float) -> float:
    """One-sided upper bound of the difference of two rates on the same n tasks, by Tango's score (Statistics in
    Medicine 17, 1998): `worse` tasks failed with the candidate alone, `better` with the other alone. At a difference of
    0 its statistic is McNemar's. 1 without a sample."""
    if n <= 0:
        return 1.0
    z = NormalDist().inv_cdf(confidence)

    def beyond(delta: float) -> float:
        return delta * n - (worse - better) - z * _score_error(worse, better, n, delta)

    counted = (worse - better) / n
    return 1.0 if counted >= 1.0 else _root(beyond, counted, 1.0)


def _score_error(worse: int, better: int, n: int, delta: float) -> float:
    """Standard error of `worse - better` where the true difference is `delta`, at the constrained maximum likelihood of
    the discordant share."""
    a = 2.0 * n
    b = -worse - better + (2.0 * n - worse + better) * delta
    c = -better * delta * (1.0 - delta)
    share = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
    return math.sqrt(max(0.0, n * (2.0 * share + delta * (1.0 - delta))))


def paired_score_upper(differences: Sequence[float], confidence: float) -> float:
    """One-sided upper bound, not below 0, of the mean of differences from -1 to 1, valid at every sample size however
    skewed the scores are: the capital of a bettor against a larger mean (Waudby-Smith and Ramdas, JRSS B 86, 2024,
    section 4.2), who bets by the variance seen so far. 1 without a sample."""
    if not differences:
        return 1.0
    goal = -math.log(1.0 - confidence)
    scaled = [0.5 * (item + 1.0) for item in differences]
    bets, total, squares = [], 0.0, 0.25
    for count, item in enumerate(scaled, 1):
        bets.append(min(BOLDEST, math.sqrt(2.0 * goal * count / (squares * len(scaled)))))
        total += item
        squares += (item - (0.5 + total) / (count + 1)) ** 2

    def capital(mean: float) -> float:
        return math.fsum(math.log1p(bet * (mean - item)) for bet, item in zip(bets, scaled, strict=True))

    return max(0.0, 2.0 * _root(lambda mean: capital(mean) - goal, 0.5, 1.0) - 1.0)


def gap_upper(rows: Sequence[Sequence[int]], confidence: float) -> tuple[float, tuple[int, int]]:
    """Upper bound of the widest difference between the failure rates of two columns, and which two it is of.

    Every ordered pair of columns has its paired bound; that all of them hold together is Bonferroni's.
    """
    if not rows:
        return 1.0, (0, 1)
    columns = len(rows[0])
    pairs = list(permutations(range(columns), 2))
    each = 1.0 - (1.0 - confidence) / len(pairs)
    result = []
    for one, other in pairs:
        worse = sum(1 for row in rows if row[one] and not row[other])
        better = sum(1 for row in rows if row[other] and not row[one])
        result.append((paired_rate_upper(worse, better, len(rows), each), (one, other)))
    return max(result)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Root of a rising function between the two; the upper end where it never crosses 0."""
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if rising(middle) > 0.0:
            high = middle
        else:
            low = middle
    return high
