"""Two sides' returns: interquartile means of runs, bootstrap intervals (Agarwal et al., 2021, arXiv 2108.13264)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.trainer.statistics_of import iqm

RESAMPLES = 2000
Returns = Sequence[Sequence[float]]  # of each run, of each of its episodes


def of_runs(returns: Returns) -> float:
    """A run's score is its mean return: fewer than four runs have their mean."""
    return iqm([float(np.mean(run)) for run in returns])


def _drawn(returns: Returns, random: np.random.Generator) -> list[NDArray[Any]]:
    """Runs drawn with replacement, and of each drawn run episodes drawn with replacement."""
    runs = [np.asarray(returns[run]) for run in random.integers(len(returns), size=len(returns))]
    return [random.choice(run, size=len(run)) for run in runs]


def compared(ours: Returns, peer: Returns) -> dict[str, list[float]]:
    """Of both sides and of their difference: the interquartile mean, and its 95 % interval."""
    random = np.random.default_rng(0)
    pairs = np.asarray(
        [(of_runs(_drawn(ours, random)), of_runs(_drawn(peer, random))) for _ in range(RESAMPLES)]  # type: ignore[arg-type]
    )
    first, second = of_runs(ours), of_runs(peer)
    figures = {}
    columns = (("ours", first, pairs[:, 0]), ("peer", second, pairs[:, 1]))
    for name, value, draws in (*columns, ("difference", first - second, pairs[:, 0] - pairs[:, 1])):
        figures[name] = [round(float(number), 2) for number in (value, *np.percentile(draws, (2.5, 97.5)))]
    return figures
