"""Does a curriculum help? The hardest level alone, and by the levels; the last line is one JSON object.

usage: python -m bench.worlds.curricula WORLD STEPS SEEDS [ALGORITHM, else ppo]

Both play the same held-out episodes, so the interval is that of the differences seed by seed (Student's t).
"""

import json
import sys

import numpy as np
import torch

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
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # 97.5 %, by degrees of freedom from 1


def returns(name: str, algorithm_name: str, steps: int, seed: int, climbs: bool) -> tuple[list[float], str]:
    """Of held-out episodes at the hardest level, and the level that training reached."""
    parameters = hyperparameters(algorithm_name)
    members = range(parameters.environments)
    sample = wrappers.innermost(make(name, Split.TRAINING, seed, range(1)))
    levels = sample.LEVELS
    hardest = Conditions(levels[-1].name)
    environment = wrappers.Counted(make(name, Split.TRAINING, seed, members, Conditions() if climbs else hardest))
    progress = CurriculumProgress(levels, 0, Curriculum())
    algorithm = learner(parameters, environment, Occasion(seed, steps, len(members), Alone()), torch.device("cpu"))
    observation = environment.reset()
    while algorithm.step < steps:
        observation, _ = algorithm.iterate(observation)
        if climbs:
            counts = environment.take()
            if progress.note(*counts):
                wrappers.innermost(environment).level = progress.level
    head, activation = traits_of(algorithm_name).network
    body = build(algorithm.network.exported(), head, activation, {}, environment.bounds)
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
    algorithm = sys.argv[4] if len(sys.argv) > 4 else "ppo"
    means: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(seeds):
        for climbs, reached in means.items():
            values, level = returns(name, algorithm, steps, seed, climbs)
            reached.append(float(np.mean(values)))
            print(f"seed {seed} curriculum {climbs}: {reached[-1]:.2f}, at {level}", file=sys.stderr, flush=True)
    gains = np.subtract(means[True], means[False])
    half = STUDENT[min(seeds - 1, len(STUDENT)) - 1] * gains.std(ddof=1) / np.sqrt(seeds)
    difference = [round(float(value), 2) for value in (gains.mean(), gains.mean() - half, gains.mean() + half)]
    by_levels, alone = (round(float(np.mean(reached)), 2) for reached in means.values())
    figures = {"by_levels": by_levels, "hardest_alone": alone, "difference": difference}
    print(json.dumps({"world": name, "algorithm": algorithm, "steps": steps, "seeds": seeds} | figures))


if __name__ == "__main__":
    main()
