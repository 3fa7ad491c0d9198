"""Small tasks that `tests/learning` trains: an algorithm, a simpler baseline, an environment and a number of steps.

Both sides have the same hyperparameters except for what is compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Learner, Occasion, learner
from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation import play
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.export.exported_policy import graph
from learnloop_trainer.floating_point import settle


@dataclass(frozen=True, slots=True)
class Side:
    """An algorithm with its hyperparameters (camelCase, as in a TrainingJob)."""

    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """Two sides on one environment for the same number of environment steps."""

    environment: str
    steps: int
    ours: Side
    baseline: Side


_GAME = {"environments": 32, "learningStarts": 500, "stepsPerUpdate": 32, "bufferSize": 5000, "hidden": [32]}
_GAME |= {"learningRate": 2e-3, "epsilonEnd": 1.0, "targetUpdate": 50}  # always explores, as in the paper's game
_RELAY = {"stepsPerUpdate": 8, "learningRate": 2e-3, "hidden": [32, 32]}

_KEY = {"environments": 32, "stepsPerUpdate": 16, "bufferSize": 50_000, "hidden": [64], "learningRate": 1e-3}
_KEY |= {"batchSize": 128, "targetUpdate": 20, "epsilonEnd": 0.05, "explorationFraction": 0.5, "discount": 0.95}

TASKS = {
    "qmix": Task("teams:TwoStep", 20_000, Side("qmix", _GAME), Side("independent-dqn", _GAME)),
    "hierarchical-dqn": Task(
        "grids:KeyDoor", 80_000, Side("hierarchical-dqn", _KEY | {"optionSteps": 25}), Side("dqn", _KEY)
    ),
    "maddpg": Task("teams:Relay", 16_000, Side("maddpg", _RELAY), Side("maddpg", _RELAY | {"centralized": False})),
    "maddpg-hybrid": Task(
        "teams:RelayHybrid", 30_000, Side("maddpg", _RELAY), Side("maddpg", _RELAY | {"centralized": False})
    ),
}


def train(environment: str, side: Side, steps: int, seed: int) -> Learner:
    """A learner after `steps` environment steps, on one thread."""
    settle(1)
    parameters = hyperparameters(side.algorithm, **side.parameters)
    members = range(parameters.environments)
    world = make(environment, Split.TRAINING, seed, members)
    algorithm = learner(parameters, world, Occasion(seed, steps, len(members), Alone()), torch.device("cpu"))
    observation = world.reset()
    while algorithm.step < steps:
        observation, _ = algorithm.iterate(observation)
    return algorithm


def held_out_return(environment: str, side: Side, steps: int, seed: int, episodes: int = 200) -> float:
    """Train, export, and play the exported policy on held-out episodes: their mean return."""
    algorithm = train(environment, side, steps, seed)
    world = algorithm.environment
    continuous = world.bounds is not None
    body = graph(algorithm.network.exported(), side.algorithm, {}, world.bounds, None)
    policy = OnnxPolicy(body, world.observations, world.actions, continuous=continuous)
    returns, _ = play(environment, policy, seed, episodes, lambda done: None)
    return float(returns.mean())


def improvement(
    ours: NDArray[np.floating], other: NDArray[np.floating], seed: int, resamples: int = 10_000
) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of mean(ours) - mean(theirs), both resampled; raises ValueError when empty."""
    if not len(ours) or not len(other):
        raise ValueError("a comparison needs results on both sides")
    random = np.random.default_rng(seed)
    means = [
        np.asarray(side)[random.integers(0, len(side), (resamples, len(side)))].mean(axis=1) for side in (ours, other)
    ]
    low, high = np.quantile(means[0] - means[1], (0.025, 0.975))
    return float(low), float(high)
