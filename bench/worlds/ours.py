"""One run of learnloop in a world, by its own engine or by engine sb3; prints one JSON object."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_api.wire import engine as wire
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import Conditions
from learnloop_environments.spaces import VectorEnvironment
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.distributed import Alone
from learnloop_trainer.engines.engine_process import Exchange
from learnloop_trainer.engines.sb3 import train
from learnloop_trainer.evaluation import Policy, play
from learnloop_trainer.export import OnnxPolicy, build
from learnloop_trainer.floating_point import settle


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Train, and play the exported policy on held-out episodes, greedily."""
    settle(1)
    name, seed, conditions = task["environment"], int(task["seed"]), Conditions(task.get("level"))
    began = time.perf_counter()
    policy, steps, updates = (by_sb3 if task["engine"] == "sb3" else by_own)(task, seed, conditions)
    wall = time.perf_counter() - began
    returns, _ = play(
        lambda members: make(name, Split.HELD_OUT, seed, members, conditions), policy, seed, task["episodes"], _quiet
    )
    return {"wall_s": wall, "steps": steps, "updates": updates, "returns": returns.tolist()}


def by_own(task: dict[str, Any], seed: int, conditions: Conditions) -> tuple[Policy, int, int]:
    parameters = hyperparameters(task["algorithm"], **task["ours"])
    members = range(parameters.environments)
    environment = make(task["environment"], Split.TRAINING, seed, members, conditions)
    occasion = Occasion(seed, task["steps"], len(members), Alone())
    algorithm = learner(parameters, environment, occasion, torch.device("cpu"))
    observation = environment.reset()
    while algorithm.step < task["steps"]:
        observation, _ = algorithm.iterate(observation)
    head, activation = traits_of(task["algorithm"]).network
    body = build(algorithm.network.arrays(), head, activation, {}, environment.bounds)
    return _policy(body, environment), algorithm.step, algorithm.network.updates


def by_sb3(task: dict[str, Any], seed: int, conditions: Conditions) -> tuple[Policy, int, int]:
    """By the engine's own code and files; its policy is the one that it hands in."""
    world = make(task["environment"], Split.TRAINING, seed, range(1), conditions)
    bounds = world.bounds
    low, high = (None, None) if bounds is None else (bounds.low.tolist(), bounds.high.tolist())
    with tempfile.TemporaryDirectory() as folder:
        exchange = Exchange(Path(folder))
        order = wire.EngineOrder(
            job="bench",
            attempt=0,
            rank=0,
            world_size=1,
            algorithm=task["algorithm"],
            total_steps=task["steps"],
            seed=seed,
            environment_seeds=[],
            environment=task["environment"],
            observations=world.observations,
            actions=world.actions,
            low=low,
            high=high,
            settings=task["ours"],
        )
        train(order, exchange)
        body = exchange.take(wire.POLICY, 1 << 29)
        result = exchange.read(wire.RESULT, wire.EngineResult, 1 << 26)
    assert body is not None
    assert result is not None
    return _policy(body, world), result.step, 0


def _policy(body: bytes, world: VectorEnvironment) -> Policy:
    return OnnxPolicy(body, world.observations, world.actions, continuous=world.bounds is not None)


def _quiet(finished: int) -> None:
    """Nothing is watched."""


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
