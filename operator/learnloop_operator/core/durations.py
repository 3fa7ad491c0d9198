"""Durations for humans."""

import math
from bisect import bisect_left
from itertools import pairwise

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
ROUND = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(MINUTE * count for count in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(HOUR * count for count in (1, 2, 3, 6, 12)),
    *(DAY * count for count in (1, 2, 3, 7, 14, 30, 90, 365)),
)
"""Seconds that people say when they mean about so long."""
_BETWEEN = tuple(math.sqrt(lower * upper) for lower, upper in pairwise(ROUND))
"""What is as far from one as from the next, by ratio."""


def rough(seconds: float) -> float:
    """The nearest of the round durations, by ratio: an estimate that changed with every look would be written with
    every look."""
    return ROUND[bisect_left(_BETWEEN, seconds)]


def text(seconds: float) -> str:
    """At most two units, e.g. 45s, 1m20s, 2h05m, 3d04h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, seconds_left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{seconds_left:02d}s"
    hours, minutes_left = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes_left:02d}m"
    days, hours_left = divmod(hours, 24)
    return f"{days}d{hours_left:02d}h"
