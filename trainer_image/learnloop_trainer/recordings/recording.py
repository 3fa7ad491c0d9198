"""What an algorithm learns from where experience was logged."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Recording:
    """What was seen and done; leading axis [steps]."""

    observation: NDArray[np.float32]  # [steps, observations]
    action: NDArray[Any]  # int64 [steps], or float32 [steps, dimensions] scaled to [-1, 1]
    reward: NDArray[np.float32]  # [steps], the environment's own, or its part in what the RewardPolicy gave
    log_prob: NDArray[np.float32]  # [steps], of the policy that acted; NaN where it was not recorded
    last: NDArray[np.bool_]  # [steps], the last one of its episode, or the last one before steps that do not fit
    terminated: NDArray[np.bool_]  # [steps], the environment ended the episode here
    # What was seen after each step marked last [those, observations], and whether somebody recorded it [those]; where
    # nobody did, the step's own observation. None: nobody recorded any.
    beyond: NDArray[np.float32] | None = None
    known_beyond: NDArray[np.bool_] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields by name, for a checkpoint."""
        named = {f"recording.{item.name}": getattr(self, item.name) for item in fields(self)}
        return {name: array for name, array in named.items() if array is not None}

    def endings(self) -> NDArray[np.float32]:
        """What was seen after each step marked last; where nobody recorded it, that step's own observation."""
        return self.observation[self.last] if self.beyond is None else self.beyond

    def known_endings(self) -> NDArray[np.bool_]:
        """For each step marked last: did somebody record what was seen after it?"""
        return np.zeros(int(self.last.sum()), dtype=np.bool_) if self.known_beyond is None else self.known_beyond

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> "Recording | None":
        """The inverse of `arrays`; None where there is no recording among them."""
        if "recording.observation" not in arrays:
            return None
        names = [item.name for item in fields(cls) if f"recording.{item.name}" in arrays]
        found: dict[str, NDArray[Any]] = {name: np.array(arrays[f"recording.{name}"]) for name in names}
        return cls(**found)
