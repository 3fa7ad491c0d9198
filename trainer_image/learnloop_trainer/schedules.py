"""How a number changes over a run, by the share of the run that is done."""

import math


def decayed(start: float, kind: str, done: float) -> float:
    """`start` at done = 0: stays (constant), falls along a line (linear) or half a cosine (cosine) to 0 at done = 1.

    >>> [decayed(2.0, kind, 0.5) for kind in ("constant", "linear", "cosine")]
    [2.0, 1.0, 1.0]
    """
    left = 1.0 - min(1.0, max(0.0, done))
    match kind:
        case "linear":
            return start * left
        case "cosine":
            return start * (1.0 - math.cos(math.pi * left)) / 2.0
        case _:
            return start


def between(start: float, end: float | None, done: float) -> float:
    """Along a line from `start` at done = 0 to `end` at done = 1; `start` throughout where there is no end."""
    return start if end is None else start + (end - start) * min(1.0, max(0.0, done))
