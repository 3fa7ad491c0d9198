"""Quantiles, and a ratio with its spread."""

import random
from collections.abc import Sequence

RESAMPLES = 2000


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of the medians, and the 2.5 % and 97.5 % quantiles of it over bootstrap resamples."""
    source = random.Random(0)
    again = [
        quantile(source.choices(theirs, k=len(theirs)), 0.5) / quantile(source.choices(ours, k=len(ours)), 0.5)
        for _ in range(RESAMPLES)
    ]
    return quantile(theirs, 0.5) / quantile(ours, 0.5), quantile(again, 0.025), quantile(again, 0.975)


def summary(name: str, values: Sequence[float]) -> dict[str, float]:
    """p50, p99, the least and the most, in seconds."""
    return {
        f"{name}_p50_s": round(quantile(values, 0.5), 3),
        f"{name}_p99_s": round(quantile(values, 0.99), 3),
        f"{name}_min_s": round(min(values), 3),
        f"{name}_max_s": round(max(values), 3),
    }
