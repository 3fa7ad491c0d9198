"""What is asked of a policy whose return is to be estimated from what others did."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a policy does where it sees each of n observations: of k actions each with a weight."""

    action: NDArray[Any]  # int64 [n, k], or float32 [n, k, numbers] as the environment takes them
    weight: NDArray[np.float64]  # [n, k], sums to 1 in each row


class Target(Protocol):
    """A policy that knows how likely it does what."""

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> NDArray[np.float64]:
        """Natural log of the probability, or of the density, of actions [n]; NaN where there is none to compare."""

    def mixture(self, observation: Observations) -> Mixture:
        """All that it may choose, or a draw of its numbers."""
