"""Sums of returns on the scale of returnRange, and where they lie when they cannot come from returns in that range."""

import math
from enum import Enum

from learnloop_operator.statistics.betting import Counts

JITTER = 2.0
"""Episodes by which a sum and its count, which are extrapolated apart, may differ."""
SLACK = 0.01
"""Share of the range by which a mean may lie beyond its ends: sums and counts are extrapolated apart."""


class Side(Enum):
    """Where a mean lies that does not lie in the range."""

    BELOW = "below"
    ABOVE = "above"


def side(seen: Counts) -> Side | None:
    """Where the mean of `seen` lies, on the scale 0..1; None within the range, near its ends, and for no numbers."""
    if not (math.isfinite(seen.n) and math.isfinite(seen.total)) or seen.n <= 0.0:
        return None
    margin = JITTER + SLACK * seen.n
    if seen.total < -margin:
        return Side.BELOW
    return Side.ABOVE if seen.total > seen.n + margin else None


def fitted(seen: Counts) -> Counts:
    """`seen` as outcomes in 0..1 can have given it, where it is that but for rounding; else as it is, which no test
    takes for evidence."""
    if side(seen) is not None or not math.isfinite(seen.total) or not seen.n >= 0.0:
        return seen
    return Counts(seen.n, min(seen.n, max(0.0, seen.total)))
