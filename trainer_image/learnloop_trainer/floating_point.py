"""Numbers at the edges of floating point.

NaN and infinity end a run at once: a checkpoint or a model made from them is worth nothing. Denormal numbers, below
1.2e-38, become zero: the moments of a parameter that gets no gradient any more decay into that range, where one
multiplication costs a hundred.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_trainer.errors import NumericError

_HINTS = {
    "observation": "check the environment's observations",
    "reward": "check the environment's rewards",
    "loss": "lower the learning rate or the size of the rewards",
}


def settle(threads: int) -> None:
    """Before the first computation on the CPU: how many threads, none of which computes with denormal numbers.

    Threads inherit the setting from the one that starts them, so this comes before any of torch's.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)


def require_finite(step: int, **arrays: NDArray[Any]) -> None:
    """Raise NumericError naming the first array that holds a NaN or an infinity."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NumericError(f"{name} is not finite at step {step}; {_HINTS[name]}")
