"""Quantiles, and a ratio with its spread."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000


@dataclass(frozen=True)
class Breach:
    """Seconds from the first failed answer to weight 0, and how many requests had failed by then."""

    seconds: float
    failed_requests: int

    def __str__(self) -> str:
        return f"weight 0 after {self.seconds:.2f} s and {self.failed_requests} failed requests"


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio(peer: Sequence[Breach], ours: Sequence[Breach], name: str = "") -> dict[str, float]:
    """Under `name`, ratio of the median seconds, with the 2.5 % and 97.5 % quantiles of it over bootstrap resamples."""
    source, one, other = random.Random(0), _seconds(peer), _seconds(ours)
    again = [
        quantile(source.choices(one, k=len(one)), 0.5) / quantile(source.choices(other, k=len(other)), 0.5)
        for _ in range(RESAMPLES)
    ]
    return {
        f"{name}ratio": round(quantile(one, 0.5) / quantile(other, 0.5), 2),
        f"{name}ratio_95_low": round(quantile(again, 0.025), 2),
        f"{name}ratio_95_high": round(quantile(again, 0.975), 2),
    }


def summary(name: str, records: Sequence[Breach]) -> dict[str, float]:
    """p50, p99, the least and the most, in seconds; and the requests that failed in a median breach."""
    seconds = _seconds(records)
    return {
        f"{name}_p50_s": round(quantile(seconds, 0.5), 3),
        f"{name}_p99_s": round(quantile(seconds, 0.99), 3),
        f"{name}_min_s": round(min(seconds), 3),
        f"{name}_max_s": round(max(seconds), 3),
        f"{name}_failed_requests_p50": quantile([breach.failed_requests for breach in records], 0.5),
    }


def _seconds(records: Sequence[Breach]) -> list[float]:
    return [breach.seconds for breach in records]
