"""Comparisons of two policies over several conditions, with stratified bootstrap intervals.

Agarwal, Schwarzer, Castro, Courville & Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021, arXiv 2108.13264). Where they resample the runs of each task, episodes of each condition are resampled
here: the interval speaks of this policy on further episodes, not of further training runs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Interval
from learnloop_environments.randomness import Purpose, generator

Strata = Sequence[NDArray[np.floating]]
RESAMPLES = 2000


def _interval(value: float, resampled: NDArray[np.floating]) -> Interval:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(value=float(value), low=float(low), high=float(high))


def _interquartile_means(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean of the middle half of each row [m, n]."""
    cut = rows.shape[1] // 4
    ordered = np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut]
    return np.asarray(ordered.mean(axis=1), dtype=np.float64)


def interquartile_mean(strata: Strata, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Interquartile mean over the returns of all strata together; each stratum is resampled on its own.

    Raises ValueError without any return.
    """
    pooled = np.concatenate([np.asarray(stratum, dtype=np.float64) for stratum in strata])
    if not len(pooled):
        raise ValueError("an interquartile mean needs at least one return")
    random = generator(Purpose.BOOTSTRAP, seed)
    rows = [
        np.asarray(stratum, dtype=np.float64)[random.integers(0, len(stratum), (resamples, len(stratum)))]
        for stratum in strata
        if len(stratum)
    ]
    value = _interquartile_means(pooled[None, :])[0]
    return _interval(value, _interquartile_means(np.concatenate(rows, axis=1)))


def probability_of_improvement(ours: Strata, theirs: Strata, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Probability that an episode of ours has the higher return than one of theirs, ties counting half.

    The Mann-Whitney statistic of each stratum, then its mean over the strata (section 4.3 of the paper). Both sides are
    resampled within each stratum. Raises ValueError when a stratum lacks a side.
    """
    if not ours or len(ours) != len(theirs) or not all(len(side) for side in (*ours, *theirs)):
        raise ValueError("a comparison needs returns of both sides under each condition")
    random = generator(Purpose.BOOTSTRAP, seed, 1)
    value, resampled = 0.0, np.zeros(resamples)
    for own, other in zip(ours, theirs, strict=True):
        column, row = np.asarray(own)[:, None], np.asarray(other)[None, :]
        wins = (column > row) + 0.5 * (column == row)
        first, second = (
            random.multinomial(count, np.full(count, 1.0 / count), resamples) / count for count in wins.shape
        )
        value += wins.mean() / len(ours)
        resampled += ((first @ wins) * second).sum(axis=1) / len(ours)
    return _interval(value, resampled)
