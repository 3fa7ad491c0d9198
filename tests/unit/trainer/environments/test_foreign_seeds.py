"""Seeds of Gymnasium's and PettingZoo's environments: no held-out one comes twice for an agent, in 31 bits or more."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN
from learnloop_environments.interfaces.foreign_spaces import begin, foreign_seeds
from learnloop_environments.interfaces.gymnasium_vectors import GymnasiumVector
from learnloop_environments.randomness import Split

EPISODES = 24_000
"""Of one run; more than enough that 50 runs of hashed 31 bits would meet."""


def run(number: int, seed: int = 12345, episodes: int = EPISODES) -> list[int]:
    first = number * EPISODES_PER_RUN
    return foreign_seeds(Split.HELD_OUT, seed, np.arange(first, first + episodes, dtype=np.uint64))


def test_no_held_out_seed_of_31_bits_comes_twice_in_fifty_runs() -> None:
    seeds = np.concatenate([run(number) for number in range(1, 51)])
    assert len(np.unique(seeds)) == len(seeds) == 50 * EPISODES
    assert seeds.min() >= 2**30, "bit 30 marks it as held out"
    assert seeds.max() < 2**31, "environments that take a signed number of 32 bits play it"


def test_the_last_run_that_31_bits_have_room_for_and_the_first_beyond_share_no_seed() -> None:
    last, beyond, again = run(127), run(128), run(256)
    assert max(last) < 2**31 <= min(beyond)
    assert len({*run(0), *last, *beyond, *again}) == 4 * EPISODES
    short = [{seed % 2**31 for seed in seeds} for seeds in (run(0), beyond, again)]
    assert len(short[0] & short[1]) < 10, "cut to 31 bits these meet by chance alone"
    assert len(short[1] & short[2]) < 10


def test_training_has_other_seeds_and_two_agents_have_others() -> None:
    members = np.arange(10_000, dtype=np.uint64)
    trained = foreign_seeds(Split.TRAINING, 12345, members)
    assert max(trained) < 2**30
    assert run(1, episodes=100) != run(1, seed=12346, episodes=100)


class Short(gymnasium.Env[Any, Any]):
    """Takes a signed number of 32 bits, as environments written in C++ do."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        random = np.random.RandomState(int(np.int32(seed or 0)))
        return np.asarray([random.random_sample()], dtype=np.float32), {}

    def step(self, action) -> tuple:
        return np.zeros(1, dtype=np.float32), 0.0, True, False, {}


@pytest.mark.parametrize("run", [0, 1, 127, 128, 256])
def test_an_environment_that_takes_signed_numbers_of_32_bits_plays_every_run(run: int) -> None:
    first = run * EPISODES_PER_RUN
    environment = GymnasiumVector("short", Split.HELD_OUT, 1, range(first, first + 3), Short)
    begun = environment.reset()
    expected = [np.random.RandomState(seed % 2**31).random_sample() for seed in environment._seeds]
    assert begun[:, 0] == pytest.approx(expected)
    environment.close()


def test_what_an_environment_says_of_a_short_seed_is_told() -> None:
    def reset(seeds: list[int]) -> None:
        raise RuntimeError(f"asked with {seeds}")

    with pytest.raises(RuntimeError, match=r"asked with \[5\]"):
        begin(reset, [2**32 + 5])
