"""Every algorithm learns a small task of its own, judged by held-out episodes of the exported policy."""

from statistics import median

import pytest

from learnloop_api.kinds.training.algorithms import LANGUAGE, OWN
from testing.training.learned_tasks import Side, held_out_return

# Algorithm → environment, hyperparameters, steps, and a return that is out of reach without having learned.
SMALL = {
    "ppo": ("CartPole-v1", {}, 60_000, 300),  # at random 22
    "dqn": ("CartPole-v1", {"hidden": [64, 64]}, 40_000, 150),  # at random 22
    "sac": (
        "Pendulum-v1",  # at random below -1000
        {"environments": 4, "stepsPerUpdate": 4, "batchSize": 64, "hidden": [32, 32], "learningStarts": 400}
        | {"learningRate": 5e-3, "targetRate": 0.02},
        6000,
        -300,
    ),
    "independent-dqn": (
        "teams:TwoStep",  # at random below 5; 7 is the safe game
        {"environments": 32, "learningStarts": 500, "stepsPerUpdate": 32, "bufferSize": 5000, "hidden": [32]}
        | {"learningRate": 2e-3, "targetUpdate": 50},
        10_000,
        6.9,
    ),
}
COMPARED_WITH_ANOTHER = {  # what is compared with a simpler one learns its task there
    "qmix": "test_teams.py",
    "maddpg": "test_teams.py",
    "hierarchical-dqn": "test_single_agents.py",
    "maml": "test_meta.py",
    "bc": "test_offline.py",
    "cql": "test_offline.py",
    "iql-offline": "test_offline.py",
}


@pytest.mark.parametrize("algorithm", SMALL)
def test_it_learns(algorithm: str) -> None:
    """In the median of three seeds: so short a training of SAC fails with one seed in ten."""
    environment, parameters, steps, least = SMALL[algorithm]
    returns = [held_out_return(environment, Side(algorithm, parameters), steps, seed, 50) for seed in (1, 2, 3)]
    assert median(returns) > least, returns


def test_no_algorithm_is_left_out() -> None:
    assert set(SMALL) | set(COMPARED_WITH_ANOTHER) == set(OWN) - set(LANGUAGE), "language models: test_language.py"
