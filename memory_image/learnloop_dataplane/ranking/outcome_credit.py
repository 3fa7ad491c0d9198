"""What outcomes say about single memories: who gets how much of one, and what that makes them worth. Pure."""

import math


def credits(k: int, advantage: float) -> list[float]:
    """What each of k shown memories gets of an advantage: by rank, because the first is read first; sums to it."""
    weights = [1.0 / math.log2(place + 2) for place in range(k)]
    return [advantage * weight / sum(weights) for weight in weights]


def utility(helped: float, hurt: float) -> float:
    """From -1 to 1; two virtual neutral outcomes keep one lucky recall from deciding."""
    return (helped - hurt) / (helped + hurt + 2.0)


UTILITY = "((u.helped - u.hurt) / (u.helped + u.hurt + 2.0))::real"
"""The same in SQL, of a row `u` of `memory_use`."""
