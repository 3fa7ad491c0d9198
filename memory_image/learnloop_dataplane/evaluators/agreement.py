"""How far an evaluator agrees with people who rated the same episodes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Agreement:
    """An evaluator's scores beside people's opinions, both as good or bad.

    Attributes:
        episodes: that both have an opinion about; a score of 0.5 and an opinion of 0 are none.
        share: of these, where both say the same; None without any.
        low: lower end of its 95 % interval (Wilson, JASA 22, 1927).
        high: upper end.
        kappa: agreement beyond chance (Cohen, 1960); None where one of the two always says the same.
    """

    episodes: int
    share: float | None = None
    low: float | None = None
    high: float | None = None
    kappa: float | None = None


def agreement(pairs: Iterable[tuple[float, float]]) -> Agreement:
    """Of scores (0 to 1) and opinions (-1 to 1) about the same episodes."""
    table = [[0, 0], [0, 0]]
    for score, opinion in pairs:
        if score != 0.5 and opinion != 0.0:
            table[score > 0.5][opinion > 0.0] += 1
    n = sum(map(sum, table))
    if not n:
        return Agreement(0)
    share = (table[0][0] + table[1][1]) / n
    good = [(table[1][0] + table[1][1]) / n, (table[0][1] + table[1][1]) / n]
    chance = good[0] * good[1] + (1.0 - good[0]) * (1.0 - good[1])
    steady = any(part in (0.0, 1.0) for part in good)
    kappa = None if steady or chance >= 1.0 else (share - chance) / (1.0 - chance)
    middle, spread = share + Z * Z / (2 * n), Z * math.sqrt(share * (1.0 - share) / n + Z * Z / (4 * n * n))
    width = 1.0 + Z * Z / n
    return Agreement(n, share, max(0.0, (middle - spread) / width), min(1.0, (middle + spread) / width), kappa)
