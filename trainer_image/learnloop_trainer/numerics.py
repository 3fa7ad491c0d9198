"""NaN and infinity end a run at once: a checkpoint or a model made from them is worth nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.errors import NumericError

_HINTS = {
    "observation": "check the environment's observations",
    "reward": "check the environment's rewards",
    "loss": "lower the learning rate or the size of the rewards",
}


def require_finite(step: int, **arrays: NDArray[Any]) -> None:
    """Raise NumericError naming the first array that holds a NaN or an infinity."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NumericError(f"{name} is not finite at step {step}; {_HINTS[name]}")
