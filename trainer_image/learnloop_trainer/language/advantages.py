"""How much better than expected: advantages of episodes within their group, and of tokens with a value function."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]


def _totals(values: Floats, group: Groups) -> tuple[NDArray[np.intp], Floats, Floats]:
    _, index = np.unique(group, return_inverse=True)
    total = np.asarray(np.bincount(index, weights=values), dtype=np.float64)
    return index, total, np.bincount(index).astype(np.float64)


def leave_one_out(reward: Floats, group: Groups) -> Floats:
    """A_i = R_i - mean of the group's other rewards; 0 for one that is alone (Kool et al., 2019; arXiv 2402.14740)."""
    index, total, count = _totals(reward, group)
    others = (total[index] - reward) / np.maximum(count[index] - 1, 1)
    return np.where(count[index] > 1, reward - others, 0.0)


def standardised(reward: Floats, group: Groups, *, scale: bool = True, least: float = 1e-4) -> Floats:
    """A_i = (R_i - mean) / (std + least) over the group, with n - 1 (arXiv 2402.03300); `scale` False: no division.

    Without the division hard and easy tasks weigh alike (arXiv 2503.20783).
    """
    index, total, count = _totals(reward, group)
    centred = reward - (total / count)[index]
    if not scale:
        return centred
    deviation = np.sqrt(np.bincount(index, weights=centred**2) / np.maximum(count - 1, 1))
    return np.where(count[index] > 1, centred / (deviation[index] + least), 0.0)


def token_advantages(
    values: Floats, reward: float, discount: float, trace: float, stop: float = 0.0
) -> tuple[Floats, Floats]:
    """Generalised advantage estimation over the sampled tokens of one episode (arXiv 1506.02438).

    `values` [tokens]: of the state each token was drawn in. The reward comes with the last token; `stop` is the value
    of what follows it. What the world says between two sampled tokens takes no step. Returns advantages and targets of
    the values.
    """
    advantage = np.zeros_like(values)
    following, carried = stop, 0.0
    for step in range(len(values) - 1, -1, -1):
        earned = reward if step == len(values) - 1 else 0.0
        delta = earned + discount * following - values[step]
        carried = delta + discount * trace * carried
        advantage[step] = carried
        following = values[step]
    return advantage, advantage + values
