"""What learnloop_common.acting.policy says of one row, of many rows at once: for who judges whole logs.

The formulas stand there; a test holds the two against each other.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_common.acting.policy import EDGE, FORBIDDEN, LARGEST_LOG_DENSITY, Numbers

Said = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


def choices(behaviour: Behaviour, said: Said) -> Floats:
    """The probability of each choice [n, choices], from `logits` [n, choices] and the greedy `action`."""
    logits = said["logits"].astype(np.float64)
    count, rows = logits.shape[1], np.arange(len(logits))
    best = said["action"] if said["action"].ndim == 1 else said["action"][:, 0].astype(np.int64)
    if behaviour.kind == "sampled":
        raised = np.exp((logits - logits.max(axis=1, keepdims=True)) / (behaviour.temperature or 1.0))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))
    share = (behaviour.epsilon or 0.0) / count if behaviour.kind == "epsilon-greedy" else 0.0
    found = np.where(logits > FORBIDDEN, share, 0.0)
    found[rows, best] = 0.0
    found[rows, best] = 1.0 - found.sum(axis=1)
    return found


def log_density(behaviour: Behaviour, numbers: Numbers, said: Said, action: NDArray[Any]) -> Floats:
    """Of drawn actions [n, numbers], as the environment takes them; of hybrid ones the choice is the first number."""
    first = int(bool(numbers.choices))
    mean, deviation = _spread(behaviour, said)
    low, reach = np.asarray(numbers.low), (np.asarray(numbers.high) - np.asarray(numbers.low)) / 2
    squashed = np.clip((action[:, first:] - low - reach) / reach, -EDGE, EDGE)
    error = (np.arctanh(squashed) - mean) / deviation
    parts = -0.5 * error**2 - np.log(deviation) - 0.5 * math.log(2 * math.pi) - np.log(reach * (1 - squashed**2))
    found = np.clip(parts.sum(axis=1), -3e38, LARGEST_LOG_DENSITY)
    if not first:
        return np.asarray(found)
    with np.errstate(divide="ignore"):
        chosen = np.log(choices(behaviour, said))
    return np.asarray(found + chosen[np.arange(len(action)), action[:, 0].astype(np.int64)])


def draw(behaviour: Behaviour, numbers: Numbers, said: Said, random: np.random.Generator) -> NDArray[np.float32]:
    """One action [n, numbers] for each row."""
    mean, deviation = _spread(behaviour, said)
    low, high = np.asarray(numbers.low), np.asarray(numbers.high)
    squashed = np.tanh(mean + deviation * random.standard_normal(mean.shape))
    drawn = np.clip((low + high) / 2 + (high - low) / 2 * squashed, low, high)
    if not numbers.choices:
        return np.asarray(drawn, dtype=np.float32)
    cumulated = choices(behaviour, said).cumsum(axis=1)
    chosen = (cumulated < random.random((len(mean), 1))).sum(axis=1).clip(max=numbers.choices - 1)
    return np.asarray(np.concatenate((chosen[:, None], drawn), axis=1), dtype=np.float32)


def _spread(behaviour: Behaviour, said: Said) -> tuple[Floats, Floats]:
    """Mean and deviation of each number before tanh."""
    rate = behaviour.temperature or 1.0
    return said["mean"].astype(np.float64), said["deviation"].astype(np.float64) * rate
