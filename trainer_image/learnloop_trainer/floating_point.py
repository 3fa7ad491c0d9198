"""Numbers at the edges of floating point.

NaN and infinity end a run immediately: a checkpoint or a model made from them is worth nothing. Denormal numbers, below
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
}
LARGE = 1e4
"""Of numbers beyond, networks that begin with weights near 1 learn nothing: the squares of them are the loss."""
NOTHING = np.zeros((0, 1), dtype=np.float32)


def settle(threads: int) -> None:
    """Before the first computation on the CPU: how many threads, none of which computes with denormal numbers.

    Threads inherit the setting from the one that starts them, so this comes before any of torch's.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)


def require_finite(step: int, **arrays: NDArray[Any]) -> None:
    """Raise NumericError naming the first array that holds a NaN or an infinity, and which number of an observation."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            where = ""
            if name == "observation":
                *_, number = np.argwhere(~np.isfinite(array))[0].tolist()
                where = f": number {number} of it, counted from 0,"
            raise NumericError(f"{name}{where} is not finite at step {step}; {_HINTS[name]}")


def require_learned(
    step: int, weights: torch.Tensor, observation: NDArray[Any] = NOTHING, reward: NDArray[Any] = NOTHING
) -> None:
    """Raise NumericError where an update has made the weights NaN or infinite, and say what most likely did.

    Args:
        step: of the run.
        weights: the sum of all of them, or of several networks'.
        observation: those it was learned from [..., observations].
        reward: the rewards [...], as they were learned from.
    """
    if torch.isfinite(weights):
        return
    number, largest = _largest(observation.reshape(-1, observation.shape[-1]))
    _, earned = _largest(reward.reshape(-1, 1))
    lost = f"loss is not finite at step {step}"
    if largest > LARGE and largest >= earned:
        large = f"number {number} of an observation, counted from 0, has reached {largest:.3g}"
        fix = f"scale the environment's observations, best to about 1 and at most {LARGE:g}"
        raise NumericError(f"{lost}: {large}; {fix}")
    if earned > LARGE:
        fix = f"scale the environment's rewards, best to about 1 and at most {LARGE:g}"
        raise NumericError(f"{lost}: a reward has reached {earned:.3g}; {fix}")
    raise NumericError(f"{lost}, and no observation or reward is large; lower the learning rate")


def _largest(rows: NDArray[Any]) -> tuple[int, float]:
    """In which column [rows, columns] the largest absolute number is, and the number."""
    if not rows.size:
        return 0, 0.0
    most = np.abs(rows).max(axis=0)
    column = int(most.argmax())
    return column, float(most[column])
