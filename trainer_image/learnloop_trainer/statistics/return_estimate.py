"""From episode returns to a mean with its uncertainty."""

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import LEAST_PAIRS, Interval, ReturnEstimate
from learnloop_environments.randomness import Purpose, generator


def interquartile_mean(returns: NDArray[np.float64]) -> float:
    """Mean of the middle half: a quarter is cut off at each end (Agarwal et al., 2021, arXiv 2108.13264)."""
    cut = len(returns) // 4
    return float(np.sort(returns)[cut : len(returns) - cut].mean())


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
        iqm=interquartile_mean(values),
        ci_low=float(low),
        ci_high=float(high),
    )


def difference(
    ours: NDArray[np.floating], theirs: NDArray[np.floating], seed: int, subsets: int = 10_000
) -> Interval | None:
    """mean(ours) - mean(theirs) of returns [n] on the same n episodes, with a 95 % interval; None below LEAST_PAIRS.

    The interval's ends are quantiles of the mean difference over random subsets of the pairs. Each pair is in or out
    with probability 1/2 (Hartigan, 1969, "Using subsample values as typical values", JASA 64, theorem 1). Where the
    differences are symmetric, as those of equal policies are, it is exact for any number of episodes; for many it is as
    wide as the paired bootstrap's, which is too narrow for few. Raises ValueError when the episodes are not paired.
    """
    if np.shape(ours) != np.shape(theirs):
        raise ValueError(f"{np.shape(ours)} and {np.shape(theirs)} returns are not those of the same episodes")
    pairs = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
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


def improvement(
    ours: NDArray[np.floating], theirs: NDArray[np.floating], seed: int, resamples: int = 10_000
) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of mean(ours) - mean(theirs), both resampled; raises ValueError when empty."""
    if not len(ours) or not len(theirs):
        raise ValueError("a comparison needs results on both sides")
    random = generator(Purpose.BOOTSTRAP, seed)
    means = [
        np.asarray(side)[random.integers(0, len(side), (resamples, len(side)))].mean(axis=1) for side in (ours, theirs)
    ]
    low, high = np.quantile(means[0] - means[1], (0.025, 0.975))
    return float(low), float(high)
