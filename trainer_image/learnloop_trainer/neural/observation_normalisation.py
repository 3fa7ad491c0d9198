"""Observations less their running mean, in units of their running deviation.

Mean and deviation are of all observations of all ranks so far (parallel variance: Chan, Golub & LeVeque, 1979). They
change only between rollouts, so that one rollout is seen through one pair of glasses, and they go into the exported
graph as constants.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.spaces import Observations
from learnloop_trainer.distributed import Group
from learnloop_trainer.neural.networks import Floats

LIMIT = 10.0  # deviations; what lies further out is cut off there
REMEMBERED = 10_000.0  # observations that an exported policy's mean and deviation count for
MEAN, SCALE = "normaliser.mean", "normaliser.scale"
_STATE = ("normaliser.centre", "normaliser.squares", "normaliser.count")


def normalised(fixed: Mapping[str, Floats], observation: Observations) -> Observations:
    """Networks' inputs for observations [..., observations]: themselves where nothing is normalised."""
    if MEAN not in fixed:
        return observation
    return np.asarray(np.clip((observation - fixed[MEAN]) * fixed[SCALE], -LIMIT, LIMIT), dtype=np.float32)


def remembered(mean: NDArray[np.floating], scale: NDArray[np.floating]) -> dict[str, NDArray[np.generic]]:
    """A Normaliser's state from an exported policy's constants [observations], as if it had seen REMEMBERED rows."""
    squares = REMEMBERED / np.square(scale.astype(np.float64))
    return dict(zip(_STATE, (mean.astype(np.float64), squares, np.asarray([REMEMBERED])), strict=True))


class Normaliser:
    """Running mean and deviation, and what was seen since they were last brought up to date."""

    def __init__(self, observations: int) -> None:
        """Changes nothing before the first `absorb`."""
        self._mean, self._squares, self._count = np.zeros(observations), np.ones(observations), 1.0
        self._new = np.zeros((2, observations))  # sums of differences from the mean, and of their squares
        self._new_count = 0
        self._arrays = self._constants()

    def _constants(self) -> dict[str, Floats]:
        deviation = np.sqrt(self._squares / self._count + 1e-8)
        return {MEAN: self._mean.astype(np.float32), SCALE: (1.0 / deviation).astype(np.float32)}

    def arrays(self) -> dict[str, Floats]:
        return self._arrays

    def apply(self, observation: Observations) -> Observations:
        """Normalised observations [..., observations]."""
        return normalised(self._arrays, observation)

    def see(self, observation: Observations) -> Observations:
        """As `apply`, and remember observations [n, observations] for the next `absorb`."""
        difference = observation - self._mean
        self._new[0] += difference.sum(axis=0)
        self._new[1] += np.square(difference).sum(axis=0)
        self._new_count += len(observation)
        return self.apply(observation)

    def absorb(self, group: Group) -> None:
        """Collective: take in what all ranks have seen since the last call."""
        count, *sums = group.sum([float(self._new_count), *self._new.ravel().tolist()])
        shift, squares = np.asarray(sums).reshape(2, -1)
        total = self._count + count
        if count:
            self._squares = self._squares + squares - np.square(shift) / total
            self._mean, self._count = self._mean + shift / total, total
        self._new, self._new_count = np.zeros_like(self._new), 0
        self._arrays = self._constants()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that is needed to go on exactly after an `absorb`; the same on all ranks."""
        return dict(zip(_STATE, (self._mean.copy(), self._squares.copy(), np.asarray([self._count])), strict=True))

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up a saved state; raises KeyError or ValueError when it does not fit."""
        mean, squares, count = (np.array(state[name], dtype=np.float64) for name in _STATE)
        if mean.shape != self._mean.shape:
            raise ValueError(f"the normaliser saved has {len(mean)} observations, this one {len(self._mean)}")
        self._mean, self._squares, self._count = mean, squares, float(count[0])
        self._arrays = self._constants()
