"""How an exported policy acts."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import Behaviour, usual, values_actions
from learnloop_api.kinds.training.algorithms import FROM_LOG
from learnloop_common.acting import policy
from learnloop_common.acting.policy import EDGE, FORBIDDEN, LARGEST_LOG_DENSITY, Numbers
from learnloop_environments.base import Bounds
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import base as traits
from learnloop_trainer.algorithms import find
from learnloop_trainer.export.graph import Deviation
from learnloop_trainer.training_order import Order

FIELD = "spec.export.behaviour"


def deviation_of(algorithm: str) -> Deviation | None:
    """How far the numbers of its policy may stray, where it learns that."""
    traits = find(algorithm)
    return None if traits is None or traits.deviation is None else Deviation(*traits.deviation)


def behaviour_of(order: Order, bounds: Bounds | None) -> Behaviour:
    """How the exported policy acts in an environment with these bounds; raises ConfigError where it cannot."""
    spec, wanted, continuous = order.spec, order.spec.export.behaviour, bounds is not None
    if wanted is None:
        return usual(spec.algorithm, continuous=continuous)
    try:
        policy.behaviour_of({policy.BEHAVIOUR: wanted.model_dump_json(exclude_none=True)}, continuous=continuous)
    except ValueError as error:
        problem = str(error).partition(": ")[2]
        raise ConfigError(FIELD, wanted.kind, f"is refused: {problem}", "see kubectl explain") from None
    if wanted.kind == "sampled":
        _require_distribution(order, wanted, continuous=continuous)
    return wanted


def require_judgeable(order: Order, behaviour: Behaviour, bounds: Bounds | None) -> None:
    """Raises ConfigError where gates are set that nothing can pass: without an environment the log alone judges, and it
    compares densities of the numbers that were done."""
    spec = order.spec
    gated = spec.gates.significant or spec.gates.min_return is not None or spec.gates.min_improvement is not None
    if spec.data.environment is not None or bounds is None or behaviour.kind == "sampled" or not gated:
        return
    problem = "has no density of its numbers, so that the log cannot judge it and no gate passes"
    otherwise = "name spec.data.environment, or set no gates (gates.significant: false)"
    if deviation_of(spec.algorithm) is not None:
        raise ConfigError(f"{FIELD}.kind", behaviour.kind, problem, f"set it to sampled, or {otherwise}")
    able = [name for name in FROM_LOG if deviation_of(name) is not None]
    raise ConfigError("spec.algorithm", spec.algorithm, problem, f"set it to one of {', '.join(able)}, or {otherwise}")


def _require_distribution(order: Order, asked: Behaviour, *, continuous: bool) -> None:
    spec, problem, fix = order.spec, "", ""
    if continuous and deviation_of(spec.algorithm) is None:
        problem = f"needs a deviation of the numbers, which {spec.algorithm} does not learn"
        able = ", ".join(one.name for one in traits.registered() if one.deviation is not None)
        fix = f"set kind to greedy, or algorithm to {able}"
    elif continuous and spec.safety is not None:
        problem, fix = "draws numbers after the shield has looked", "set kind to greedy, or remove spec.safety"
    elif values_actions(spec.algorithm) and asked.temperature is None:
        problem = f"needs a temperature: {spec.algorithm} learns values, not logits"
        fix = "set temperature, in units of the return, or kind to epsilon-greedy"
    if problem:
        raise ConfigError(f"{FIELD}.kind", asked.kind, problem, fix)


# The formulas stand there; a test holds the two against each other.

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
    chances = np.where(logits > FORBIDDEN, share, 0.0)
    chances[rows, best] = 0.0
    chances[rows, best] = 1.0 - chances.sum(axis=1)
    return chances


def log_density(behaviour: Behaviour, numbers: Numbers, said: Said, action: NDArray[Any]) -> Floats:
    """Of drawn actions [n, numbers], as the environment takes them; of hybrid ones the choice is the first number."""
    first = int(bool(numbers.choices))
    mean, deviation = _spread(behaviour, said)
    low, reach = np.asarray(numbers.low), (np.asarray(numbers.high) - np.asarray(numbers.low)) / 2
    squashed = np.clip((action[:, first:] - low - reach) / reach, -EDGE, EDGE)
    error = (np.arctanh(squashed) - mean) / deviation
    parts = -0.5 * error**2 - np.log(deviation) - 0.5 * math.log(2 * math.pi) - np.log(reach * (1 - squashed**2))
    density = np.clip(parts.sum(axis=1), -3e38, LARGEST_LOG_DENSITY)
    if not first:
        return np.asarray(density)
    with np.errstate(divide="ignore"):
        chosen = np.log(choices(behaviour, said))
    return np.asarray(density + chosen[np.arange(len(action)), action[:, 0].astype(np.int64)])


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
    rate = behaviour.temperature or 1.0
    return said["mean"].astype(np.float64), said["deviation"].astype(np.float64) * rate
