"""Costs of held-out episodes."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop_api.kinds.reward_policy import RewardPolicySpec, SafetyConstraint
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.gymnasium_vectors import GymnasiumVector
from learnloop_environments.randomness import Split
from learnloop_environments.rewarded_by_policy import Rewarded
from learnloop_trainer.evaluation import Uniform, play
from learnloop_trainer.evaluation.held_out_costs import Costs
from learnloop_trainer.evaluation.held_out_episodes import world


def test_a_constraint_that_no_episode_reports_is_not_taken_for_one_that_holds() -> None:
    limit = SafetyConstraint(name="falls", key="misspelt", maximum=0.15)
    for trained in ((), ("falls",)):
        costs = Costs([limit], shielded=False, trained=trained)
        for seed in range(2):
            play(costs.watched(world("CartPole-v1", 0), lambda: None), Uniform(2, seed), 0, 4, lambda done: None)
        if trained:
            assert costs.compared(0)[0].mean == 0
        else:
            with pytest.raises(ConfigError, match=r"constraints falls: 'misspelt' was reported by no episode"):
                costs.compared(0)


class Measuring(gymnasium.Wrapper):
    def __init__(self, speed: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.speed = speed

    def step(self, action: Any) -> Any:
        return *self.env.step(action)[:4], {"speed": self.speed}


@pytest.mark.parametrize("speed", [math.nan, -math.inf, 1e12, np.array([np.nan])])
def test_a_cost_that_is_no_number_is_refused_in_training_and_in_the_proof(speed: Any) -> None:
    limit = {"name": "fast", "key": "speed.max", "maximum": 1}
    component = {"name": "far", "type": "time", "weight": 1}
    policy = RewardPolicySpec.model_validate({"components": [component], "constraints": [limit]})
    opened = lambda members: GymnasiumVector("m", Split.TRAINING, 0, members, lambda: Measuring(speed))  # noqa: E731
    costs, problem = Costs(policy.constraints, shielded=False), r"constraints fast: 'speed.max' is NaN or beyond ±1e9"
    with pytest.raises(ConfigError, match=problem):
        play(costs.watched(opened, lambda: None), Uniform(2, 0), 0, 2, lambda done: None)
    rewarded = Rewarded(opened(range(2)), policy)
    rewarded.reset()
    with pytest.raises(ConfigError, match=problem):
        rewarded.step(np.zeros(2, dtype=np.int64))
