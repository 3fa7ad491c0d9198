"""Ranks of many rewards at once, and how far two rankings agree."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def midranks(values: Floats) -> Floats:
    """Ranks from 1, ties share the mean of theirs. Shape (n,) to shape (n,)."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = (last - (counts - 1) / 2).astype(np.float64)
    return means[group]


def percentiles(values: Floats) -> Floats:
    """Share of the values that are lower, ties count half, in percent: strictly between 0 and 100."""
    return (midranks(values) - 0.5) * (100.0 / max(1, len(values)))


def spearman(one: Floats, other: Floats) -> float | None:
    """Rank correlation of two measurements of the same things, -1 to 1 (C. Spearman, 1904).

    None with fewer than two things, or where one of the measurements is the same for all.
    """
    if len(one) < 2:
        return None
    first, second = midranks(one), midranks(other)
    first, second = first - first.mean(), second - second.mean()
    spread = float(np.sqrt((first @ first) * (second @ second)))
    return None if spread == 0 else float(np.clip((first @ second) / spread, -1.0, 1.0))
