"""The worlds, and policies of different worth for each: what one learner knew early and late."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, learner
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.manifest.proof import Weights, graph


@dataclass(frozen=True, slots=True)
class World:
    """An environment, when its learner's weights are taken, and how its policies are told apart."""

    environment: str
    discount: float
    taken: tuple[int, int, int]  # environment steps: hardly anything, something, much was learned
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of ppo


WORLDS = {
    "cartpole": World("CartPole-v1", 0.95, (4096, 16384, 65536)),
    "lake": World("FrozenLake-v1", 0.95, (4096, 24576, 98304), {"environments": 32}),
    "rooms": World("Exploration-v1", 0.95, (8192, 65536, 196608)),
    "points": World("PointGoals-v1", 0.9, (4096, 32768, 131072)),
    "courier": World("Courier-v1", 0.9, (8192, 65536, 196608)),
}
"""Two with choices of few steps, one of many, one with numbers, one with a choice and numbers."""


def learned(world: World, seed: int) -> list[Weights]:
    """The weights of a ppo learner at the three moments."""
    environment = make(world.environment, Split.TRAINING, seed, range(64))
    parameters = ALGORITHMS["ppo"].model_validate(dict(world.parameters) | {"environments": 64})
    one = learner(parameters, environment, Occasion(seed, world.taken[-1] * 2, 64, Alone()), torch.device("cpu"))
    seen, found = environment.reset(), list[Weights]()
    for moment in world.taken:
        while one.step < moment:
            seen, _ = one.iterate(seen)
        found.append({name: np.array(array) for name, array in one.network.exported().items()})
    environment.close()
    return found


def acting(world: World, weights: Weights, temperature: float, seed: int, algorithm: str = "ppo") -> Behaving:
    """These weights as a policy server acts with them: drawn, more or less at random."""
    environment = make(world.environment, Split.TRAINING, 0, range(1))
    spaces = environment.observations, environment.actions, environment.bounds
    environment.close()
    behaviour = Behaviour(kind="sampled", temperature=temperature)
    body = graph(weights, algorithm, {"learnloop.algorithm": algorithm}, spaces[2], None, behaviour)
    policy = OnnxPolicy(body, *spaces[:2], continuous=spaces[2] is not None)
    return Behaving(policy, seed)
