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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields by name, for a checkpoint."""
        return {f"recording.{item.name}": getattr(self, item.name) for item in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> "Recording | None":
        """The inverse of `arrays`; None where there is no recording among them."""
        names = [item.name for item in fields(cls)]
        if f"recording.{names[0]}" not in arrays:
            return None
        return cls(*(np.array(arrays[f"recording.{name}"]) for name in names))
