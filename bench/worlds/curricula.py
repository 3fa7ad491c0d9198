"""Does a curriculum help? PPO at the hardest level alone, and by the levels; the last line is one JSON object.

usage: python -m bench.worlds.curricula WORLD STEPS SEEDS [PROMOTE_AT]
"""

import json
import sys

import numpy as np
import torch

from bench.worlds.figures import compared
from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_api.kinds.training.environment_conditions import Curriculum
from learnloop_environments import Conditions, make, wrappers
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation import play
from learnloop_trainer.export import OnnxPolicy, build
from learnloop_trainer.floating_point import settle
from learnloop_trainer.training_run.curriculum import CurriculumProgress

EPISODES = 300


def returns(name: str, steps: int, seed: int, climbs: bool, promote_at: float | None) -> tuple[list[float], str]:
    """Of held-out episodes at the hardest level, and the level that training reached."""
    parameters = hyperparameters("ppo")
    members = range(parameters.environments)
    sample = wrappers.innermost(make(name, Split.TRAINING, seed, range(1)))
    levels = sample.LEVELS
    hardest = Conditions(levels[-1].name)
    environment = wrappers.Counted(make(name, Split.TRAINING, seed, members, Conditions() if climbs else hardest))
    progress = CurriculumProgress(levels, 0, Curriculum(promote_at=promote_at))
    algorithm = learner(parameters, environment, Occasion(seed, steps, len(members), Alone()), torch.device("cpu"))
    observation = environment.reset()
    while algorithm.step < steps:
        observation, _ = algorithm.iterate(observation)
        if climbs:
            counts = environment.take()
            if progress.note(*counts):
                wrappers.innermost(environment).level = progress.level
    head, activation = traits_of("ppo").network
    body = build(algorithm.network.arrays(), head, activation, {}, environment.bounds)
    continuous = environment.bounds is not None
    policy = OnnxPolicy(body, environment.observations, environment.actions, continuous=continuous)
    played, _ = play(
        lambda held_out: make(name, Split.HELD_OUT, seed, held_out, hardest),
        policy,
        seed,
        EPISODES,
        lambda finished: None,
    )
    return played.tolist(), progress.name


def main() -> None:
    settle(1)
    name, steps, seeds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    promote_at = float(sys.argv[4]) if len(sys.argv) > 4 else None
    sides: dict[bool, list[list[float]]] = {True: [], False: []}
    for seed in range(seeds):
        for climbs, played in sides.items():
            values, level = returns(name, steps, seed, climbs, promote_at)
            played.append(values)
            print(f"seed {seed} curriculum {climbs}: {np.mean(values):.2f}, at {level}", file=sys.stderr, flush=True)
    figures = compared(sides[True], sides[False])
    print(json.dumps({"world": name, "steps": steps, "seeds": seeds} | figures))


if __name__ == "__main__":
    main()
