"""What a client asks before each write."""

import math
from collections.abc import Callable

WriteGuard = Callable[[], float]
"""Seconds after which a write that begins now must be over; raises when it may not begin."""


def unguarded() -> float:
    """Any write may begin, and take its time."""
    return math.inf
