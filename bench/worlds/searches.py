"""Does a setting or a study help? Each is compared with the defaults, seed by seed; the last line is one JSON object.

usage: python -m bench.worlds.searches WORLD ALGORITHM STEPS SEEDS SETTINGS
       python -m bench.worlds.searches WORLD ALGORITHM STEPS SEEDS study:TRIALS

SETTINGS are hyperparameters as JSON. A study searches the default space by Optuna, ranks its trials on episodes that
nothing else plays, and its winner trains again under two seeds that no trial had. Both sides play the same held-out
episodes, so the interval is that of the differences seed by seed (Student's t).
"""

import json
import sys
from typing import Any

import numpy as np
import optuna
import torch

from bench.worlds.curricula import STUDENT
from learnloop_api.kinds.training.algorithms import ALGORITHMS, hyperparameters
from learnloop_api.kinds.training.study import Study
from learnloop_dataplane.training.parameter_search import suggest, values
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation import play
from learnloop_trainer.export import OnnxPolicy, build
from learnloop_trainer.floating_point import settle

EPISODES, APART, AGAIN = 200, 1000, 2


def returned(
    name: str, algorithm: str, steps: int, seed: int, settings: dict[str, Any], validation: bool = False
) -> float:
    """Mean return of the exported policy, played greedily."""
    parameters = hyperparameters(algorithm, **settings)
    members = range(parameters.environments)
    world = make(name, Split.TRAINING, seed, members)
    trained = learner(parameters, world, Occasion(seed, steps, len(members), Alone()), torch.device("cpu"))
    observation = world.reset()
    while trained.step < steps:
        observation, _ = trained.iterate(observation)
    body = build(trained.network.exported(), *traits_of(algorithm).network, {}, world.bounds)
    policy = OnnxPolicy(body, world.observations, world.actions, continuous=world.bounds is not None)
    # Validation plays other episodes than any seed here trains or is judged on.
    episodes = (Split.TRAINING, seed + 500_000) if validation else (Split.HELD_OUT, seed)
    played, _ = play(lambda some: make(name, *episodes, some), policy, seed, EPISODES, lambda finished: None)
    return float(played.mean())


def searched(name: str, algorithm: str, steps: int, seed: int, trials: int) -> dict[str, Any]:
    """The settings that a study ends with."""
    space = Study(trials=trials).searched(ALGORITHMS[algorithm].fields)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8))
    for _ in range(trials):
        trial = study.ask()
        for dimension in space:
            suggest(trial, dimension)
        settings = values(space, trial.params)
        study.tell(trial, returned(name, algorithm, steps, seed, settings, validation=True))
    return values(space, study.best_trial.params)


def main() -> None:
    settle(1)
    name, algorithm, steps, seeds, what = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    means: dict[str, list[float]] = {"settings": [], "defaults": []}
    for seed in range(seeds):
        fresh = [seed]
        settings = json.loads(what) if not what.startswith("study:") else None
        if settings is None:
            settings = searched(name, algorithm, steps, seed, int(what.removeprefix("study:")))
            fresh = [APART + AGAIN * seed + number for number in range(AGAIN)]
        for side, chosen in (("settings", settings), ("defaults", {})):
            means[side].append(float(np.mean([returned(name, algorithm, steps, one, chosen) for one in fresh])))
        print(f"seed {seed}: {means['settings'][-1]:.2f} with {settings}, {means['defaults'][-1]:.2f}", file=sys.stderr)
    gains = np.subtract(means["settings"], means["defaults"])
    half = STUDENT[min(seeds - 1, len(STUDENT)) - 1] * gains.std(ddof=1) / np.sqrt(seeds)
    difference = [round(float(value), 2) for value in (gains.mean(), gains.mean() - half, gains.mean() + half)]
    both = {side: round(float(np.mean(reached)), 2) for side, reached in means.items()}
    print(
        json.dumps(
            {"world": name, "algorithm": algorithm, "steps": steps, "seeds": seeds, "difference": difference} | both
        )
    )


if __name__ == "__main__":
    main()
