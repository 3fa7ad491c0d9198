"""Episodes that maxStepsPerEpisode truncates, in every kind of environment and wherever it is played."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from as_gymnasium import Parallel
from learnloop_api.wire.engine import EngineOrder
from learnloop_environments import Conditions, make
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.gymnasium_vectors import TeamVector
from learnloop_environments.randomness import Split
from learnloop_sdk.environment_actor import Options, World
from learnloop_trainer.engines import sb3
from learnloop_trainer.evaluation import held_out_episodes
from learnloop_trainer.evaluation.held_out_episodes import Uniform, decide, play
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.training_environment import training_world

LIMITED = Conditions(max_steps=5)
PLAYED = {
    "an array": lambda: make("Pendulum-v1", Split.TRAINING, 0, range(3), LIMITED),
    "an array that ends": lambda: make("CartPole-v1", Split.TRAINING, 0, range(3), LIMITED),
    "a simulation": lambda: make("motion:Navigation", Split.TRAINING, 0, range(3), LIMITED),
    "Gymnasium": lambda: make("MountainCar-v0", Split.TRAINING, 0, range(3), LIMITED),
    "PettingZoo": lambda: TeamVector("", Split.TRAINING, 0, range(3), lambda: Parallel("teams:Cooperative"), 5),
}


@pytest.mark.parametrize("kind", PLAYED)
def test_an_episode_is_truncated_at_its_limit_and_the_next_one_has_as_many_steps(kind: str) -> None:
    world = PLAYED[kind]()
    observation, policy = world.reset(), Uniform(world.actions, 0, world.bounds)
    for age in range(1, 11):
        step = world.step(decide(policy, world, observation))
        observation = step.observation
        assert step.truncated.all() == (age % 5 == 0), age
        assert not step.terminated.any(), "what is cut off has a future, which a learner bootstraps"
        assert (step.successor != step.observation).any() == (age % 5 == 0), "seen last, and not of the next episode"


def test_training_and_the_proof_play_episodes_of_the_jobs_limit(make_order: Callable[..., Order]) -> None:
    order = make_order("ppo", data={"environment": "Pendulum-v1", "maxStepsPerEpisode": 7})
    world = training_world(order, range(2))
    assert [world.step(np.zeros((2, 1))).truncated.all() for _ in range(7)] == [False] * 6 + [True]
    returns, met = play(held_out_episodes.held_out(order), Uniform(1, 0, world.bounds), 0, 3, lambda _: None)
    assert (len(returns), len(met)) == (3, 3 * 7)


def test_engines_and_actors_get_the_limit() -> None:
    fields: dict[str, Any] = {"job": "a", "attempt": 0, "rank": 0, "world_size": 1, "total_steps": 10, "seed": 1}
    fields |= {"environment_seeds": [], "environment": "MountainCar-v0", "observations": 2, "actions": 3}
    worlds = sb3.Environments(EngineOrder(algorithm="ppo", max_steps_per_episode=2, **fields), 1)
    worlds.reset()
    ends = []
    for _ in range(4):
        worlds.step_async(np.array([1]))
        _, _, ended, infos = worlds.step_wait()
        ends.append(bool(ended[0]) and infos[0]["TimeLimit.truncated"])
    assert ends == [False, True, False, True]
    actor = World(Options(environment="MountainCar-v0", agent="a", max_steps_per_episode=2))
    actor.reset()
    assert [actor.step([1]).truncated for _ in range(2)] == [False, True]


def test_a_world_that_ends_its_own_episodes_takes_no_limit() -> None:
    with pytest.raises(ConfigError, match=r"spec.data.maxStepsPerEpisode: '5' ends its own episodes.*leave it out"):
        make("learnloop_environments.cartpole_and_pendulum:CartPole", Split.TRAINING, 0, range(1), LIMITED)
