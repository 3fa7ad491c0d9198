"""The tasks: what is trained, on what, for how long, and beside what. `tests/learning` plays a part of them.

Both sides of a task have the same hyperparameters but for what is compared; they were picked with seeds below 1000.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.algorithms.whole_runs import CLIMBING, proven_return
from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_api.kinds.training.hierarchical_and_meta_algorithms import MamlParameters
from learnloop_environments import Conditions, make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Learner, Occasion, learner
from learnloop_trainer.algorithms.maml import Maml
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.evaluation import play
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.floating_point import settle
from learnloop_trainer.manifest.proof import graph


@dataclass(frozen=True, slots=True)
class Side:
    """An algorithm with its hyperparameters (camelCase, as in a TrainingJob)."""

    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)  # more fields of a TrainingJob's, for a whole run


@dataclass(frozen=True, slots=True)
class Task:
    """Two sides on one environment for the same number of environment steps."""

    environment: str
    steps: int
    ours: Side
    baseline: Side
    seeds: int = 10  # of each side, where the command names no other number
    adapts: bool = False  # judged by what is reached on new tasks after few episodes of each, as `ours` adapts


_GAME = {"environments": 32, "learningStarts": 500, "stepsPerUpdate": 32, "bufferSize": 5000, "hidden": [32]}
_GAME |= {"learningRate": 2e-3, "epsilonEnd": 1.0, "targetUpdate": 50}  # always exploring, as in the paper's game
_RELAY = {"stepsPerUpdate": 8, "learningRate": 2e-3, "hidden": [32, 32]}

_KEY = {"environments": 32, "stepsPerUpdate": 16, "bufferSize": 50_000, "hidden": [64], "learningRate": 1e-3}
_KEY |= {"batchSize": 128, "targetUpdate": 20, "epsilonEnd": 0.05, "explorationFraction": 0.5, "discount": 0.95}

_SEA = {"environments": 16, "stepsPerUpdate": 8, "bufferSize": 50_000, "hidden": [64], "learningRate": 1e-3}
_SEA |= {"batchSize": 128, "targetUpdate": 50, "epsilonEnd": 0.02, "explorationFraction": 0.3}
_CLIMB = {"environments": 32, "horizon": 64, "minibatches": 8, "epochs": 4, "learningRate": 1e-3}
_CLIMB |= {"normaliseObservations": True}
_FEW = {"hidden": [32, 32]}  # without inner steps, what is learned is one policy for all tasks

TASKS = {
    "qmix": Task("TwoStep-v1", 20_000, Side("qmix", _GAME), Side("independent-dqn", _GAME)),
    "hierarchical-dqn": Task(
        "KeyDoor-v1", 80_000, Side("hierarchical-dqn", _KEY | {"optionSteps": 25}), Side("dqn", _KEY)
    ),
    "maddpg": Task("Relay-v1", 16_000, Side("maddpg", _RELAY), Side("maddpg", _RELAY | {"centralized": False})),
    "maddpg-hybrid": Task(
        "RelayHybrid-v1", 30_000, Side("maddpg", _RELAY), Side("maddpg", _RELAY | {"centralized": False})
    ),
    "curiosity": Task("DeepSea-v1", 60_000, Side("dqn", _SEA | {"curiosity": {"scale": 0.05}}), Side("dqn", _SEA)),
    "maml": Task("PointGoals-v1", 800_000, Side("maml", _FEW), Side("maml", _FEW | {"adaptationRate": 1e-9}), 5, True),
}
for _name, _environment, _hardest in (("trading", "Trading-v1", "expert"), ("supply-chain", "SupplyChain-v1", "hard")):
    TASKS[f"curriculum-{_name}"] = Task(
        _environment,
        150_000,
        Side("ppo", _CLIMB, CLIMBING),
        Side("ppo", _CLIMB, {"data": {"level": _hardest}}),
        5,
    )
GOALS = Conditions(randomise=(("goal_x", -0.5, 0.5), ("goal_y", -0.5, 0.5)))
NEW_TASKS = 10_000  # occasions from here on are no training tasks


def train(environment: str, side: Side, steps: int, seed: int) -> Learner:
    """A learner after `steps` environment steps, on one thread."""
    settle(1)
    parameters = ALGORITHMS[side.algorithm].model_validate(side.parameters)
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


def adapted_return(task: Task, side: Side, seed: int) -> float:
    """Train over the family of goals; the mean return on 100 new goals after the inner steps of `task.ours`."""

    def begun(parameters: MamlParameters, steps: int) -> Maml:
        world = make(task.environment, Split.TRAINING, seed, range(parameters.environments), GOALS)
        return Maml(parameters, world, Occasion(seed, steps, parameters.environments, Alone()), torch.device("cpu"))

    settle(1)
    learner = begun(MamlParameters.model_validate(side.parameters), task.steps + 1)  # never done: it would adapt then
    observation = learner.environment.reset()
    while learner.step < task.steps:
        observation, _ = learner.iterate(observation)
    judged = begun(MamlParameters.model_validate(task.ours.parameters), 1)
    judged.network.vector.copy_(learner.network.vector)
    return float(np.mean([judged.adapted(judged.draw(NEW_TASKS + occasion))[1] for occasion in range(5)]))


def result(name: str, ours: bool, seed: int) -> float:
    """What one side of a task reaches with one seed."""
    task = TASKS[name]
    side = task.ours if ours else task.baseline
    if task.adapts:
        return adapted_return(task, side, seed)
    if side.spec:
        return proven_return(task.environment, side.algorithm, side.parameters, task.steps, seed, side.spec)
    return held_out_return(task.environment, side, task.steps, seed)
