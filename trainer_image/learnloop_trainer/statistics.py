"""Returns as means with their uncertainty, and comparisons of two policies, over several conditions by a bootstrap.

Agarwal, Schwarzer, Castro, Courville & Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021, arXiv 2108.13264). Where they resample the runs of each task, episodes of each condition are resampled
here: the interval speaks of this policy on further episodes, not of further training runs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import LEAST_PAIRS, Interval, ReturnEstimate
from learnloop_environments.randomness import Purpose, generator


def _interquartile_means(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean of the middle half of each row [m, n]: a quarter is cut off at each end."""
    cut = rows.shape[1] // 4
    ordered = np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut]
    return np.asarray(ordered.mean(axis=1), dtype=np.float64)


def estimate(returns: NDArray[np.floating], seed: int, resamples: int = 2000) -> ReturnEstimate | None:
    """Mean, interquartile mean and percentile-bootstrap 95 % interval of the mean (Efron, 1979); None for no episode.

    Returns are in the environment's own units. The same returns and seed give the same interval.
    """
    values = np.asarray(returns, dtype=np.float64)
    if not len(values):
        return None
    random = generator(Purpose.BOOTSTRAP, seed)
    means: list[NDArray[np.float64]] = []
    block = max(1, 1_000_000 // len(values))  # bounds memory for many episodes
    for start in range(0, resamples, block):
        picks = random.integers(0, len(values), (min(block, resamples - start), len(values)))
        means.append(values[picks].mean(axis=1))
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return ReturnEstimate(
        episodes=len(values),
        mean=float(values.mean()),
        iqm=float(_interquartile_means(values[None])[0]),
        ci_low=float(low),
        ci_high=float(high),
    )


def difference(
    ours: NDArray[np.floating], baseline: NDArray[np.floating], seed: int, subsets: int = 10_000
) -> Interval | None:
    """mean(ours) - mean(theirs) of returns [n] on the same n episodes, with a 95 % interval; None below LEAST_PAIRS.

    The interval's ends are quantiles of the mean difference over random subsets of the pairs. Each pair is in or out
    with probability 1/2 (Hartigan, 1969, "Using subsample values as typical values", JASA 64, theorem 1). Where the
    differences are symmetric, as those of equal policies are, it is exact for any number of episodes; for many it is as
    wide as the paired bootstrap's, which is too narrow for few. Raises ValueError when the episodes are not paired.
    """
    if np.shape(ours) != np.shape(baseline):
        raise ValueError(f"{np.shape(ours)} and {np.shape(baseline)} returns are not those of the same episodes")
    pairs = np.asarray(ours, dtype=np.float64) - np.asarray(baseline, dtype=np.float64)
    if len(pairs) < LEAST_PAIRS:
        return None
    random = generator(Purpose.BOOTSTRAP, seed, 2)
    means: list[NDArray[np.float64]] = []
    block = max(1, 1_000_000 // len(pairs))
    for start in range(0, subsets, block):
        chosen = random.random((min(block, subsets - start), len(pairs))) < 0.5
        counts = chosen.sum(axis=1)
        filled = counts > 0  # the empty subset has no mean and bounds nothing
        means.append(np.where(filled, chosen @ pairs / np.maximum(counts, 1), pairs.min()))
    ordered, tail = np.sort(np.concatenate(means)), int(0.025 * subsets)
    return Interval(value=float(pairs.mean()), low=float(ordered[tail]), high=float(ordered[-1 - tail]))


Strata = Sequence[NDArray[np.floating]]
RESAMPLES = 2000


def _interval(value: float, resampled: NDArray[np.floating]) -> Interval:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(value=float(value), low=float(low), high=float(high))


def stratified_mean(strata: Strata, seed: int, resamples: int = RESAMPLES) -> Interval:
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


def probability_of_improvement(ours: Strata, baseline: Strata, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Probability that an episode of ours has the higher return than one of theirs, ties counting half.

    The Mann-Whitney statistic of each stratum, then its mean over the strata (section 4.3 of the paper). Both sides are
    resampled within each stratum. Raises ValueError when a stratum lacks a side.
    """
    if not ours or len(ours) != len(baseline) or not all(len(side) for side in (*ours, *baseline)):
        raise ValueError("a comparison needs returns of both sides under each condition")
    random = generator(Purpose.BOOTSTRAP, seed, 1)
    value, resampled = 0.0, np.zeros(resamples)
    for own, other in zip(ours, baseline, strict=True):
        column, row = np.asarray(own)[:, None], np.asarray(other)[None, :]
        wins = (column > row) + 0.5 * (column == row)
        first, second = (
            random.multinomial(count, np.full(count, 1.0 / count), resamples) / count for count in wins.shape
        )
        value += wins.mean() / len(ours)
        resampled += ((first @ wins) * second).sum(axis=1) / len(ours)
    return _interval(value, resampled)
