"""Tests by ranks: what they say stays the same when returns are shifted, scaled or bent by any rising function."""

import math
from collections.abc import Sequence


def rank_sum(first: Sequence[float], second: Sequence[float]) -> float:
    """By how many standard deviations `first` ranks above `second` (H. B. Mann, D. R. Whitney, Annals of Mathematical
    Statistics 18, 1947), with the variance corrected for ties; 0 where all values are the same."""
    m, n = len(first), len(second)
    total = m + n
    order = sorted([(value, True) for value in first] + [(value, False) for value in second])
    ranks = ties = 0.0
    start = 0
    while start < total:
        end = start + 1  # NaN equals nothing, not even itself
        while end < total and order[end][0] == order[start][0]:
            end += 1
        same = end - start
        ranks += sum(own for _, own in order[start:end]) * (start + end + 1) / 2.0
        ties += same**3 - same
        start = end
    variance = m * n / 12.0 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0.0:
        return 0.0
    return (ranks - m * (total + 1) / 2.0) / math.sqrt(variance)


def trend(values: Sequence[float]) -> float:
    """By how many standard deviations the values rise (H. B. Mann, Econometrica 13, 1945), ties left uncorrected."""
    n = len(values)
    score = sum(
        (values[late] > values[early]) - (values[late] < values[early]) for late in range(n) for early in range(late)
    )
    return score / math.sqrt(n * (n - 1) * (2 * n + 5) / 18.0) if n > 1 else 0.0
