"""Interquartile means of evaluation episodes with bootstrap intervals, and ratios pair by pair."""

import statistics
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
Returns = Sequence[Sequence[float]]  # of each run, of each of its evaluation episodes


def iqm(returns: Sequence[float]) -> float:
    """Interquartile mean (Agarwal et al., 2021, arXiv 2108.13264)."""
    cut = len(returns) // 4
    return statistics.fmean(sorted(returns)[cut : len(returns) - cut])


def resampled(returns: Returns, random: np.random.Generator) -> float:
    """The IQM of runs drawn with replacement, and of each drawn run episodes drawn with replacement."""
    runs = [np.asarray(returns[run]) for run in random.integers(len(returns), size=len(returns))]
    return iqm(np.concatenate([random.choice(run, size=len(run)) for run in runs]).tolist())


def interval(values: Sequence[float]) -> list[float]:
    """The middle 95 %."""
    return [round(float(bound), 1) for bound in np.percentile(values, (2.5, 97.5))]


def quality(ours: Returns, peer: Returns, name: str) -> dict[str, object]:
    """Both sides' IQM over all episodes of all runs, 95 % intervals, and of their difference the value, the interval
    and the share of resamples in which ours is not below.
    """
    random = np.random.default_rng(0)
    draws = [(resampled(ours, random), resampled(peer, random)) for _ in range(RESAMPLES)]
    ours_iqm, others = (iqm([value for run in side for value in run]) for side in (ours, peer))
    return {
        "iqm": round(ours_iqm, 1),
        "iqm_ci": interval([our for our, _ in draws]),
        f"iqm_{name}": round(others, 1),
        f"iqm_{name}_ci": interval([other for _, other in draws]),
        f"iqm_minus_{name}": round(ours_iqm - others, 1),
        f"iqm_minus_{name}_ci": interval([our - other for our, other in draws]),
        f"iqm_not_below_{name}_share": round(sum(our >= other for our, other in draws) / RESAMPLES, 3),
    }


def ratios(ours: Sequence[float], peer: Sequence[float], name: str) -> dict[str, object]:
    """Median, smallest and largest of ours / peer, pair by pair."""
    values = [a / b for a, b in zip(ours, peer, strict=True)]
    return {name: round(statistics.median(values), 2), f"{name}_range": [round(min(values), 2), round(max(values), 2)]}
