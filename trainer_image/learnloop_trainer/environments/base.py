"""The vector interface all algorithms train on."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Observations = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of n environments. An episode that ends is reset within the step (SAME_STEP autoreset)."""

    observation: Observations  # [n, observations], what to act on next: already the new episode's where one ended
    successor: Observations  # [n, observations], the true next state, the final observation where an episode ended
    reward: NDArray[np.float32]  # [n]
    terminated: NDArray[np.bool_]  # [n], the task itself ended: the future is worth nothing
    truncated: NDArray[np.bool_]  # [n], only a time limit ended it: the future must be bootstrapped


class VectorEnvironment(Protocol):
    """n environments side by side. The numbers of `members` name them over all ranks together."""

    observations: int
    actions: int
    members: range

    def reset(self) -> Observations:
        """Begin episode 0 everywhere; returns observations [n, observations]."""

    def step(self, actions: NDArray[np.int64]) -> Step:
        """Take one action in each environment; actions [n] from 0 to `actions` - 1."""

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        """All that is needed to go on exactly, axis 0 = environment; None when it cannot be saved."""

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """Go on from a saved state; returns the observations to act on."""

    def close(self) -> None:
        """Release what the environments hold."""
