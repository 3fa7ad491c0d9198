"""Costs of held-out episodes."""

import pytest

from learnloop_api.kinds.reward_policy import SafetyConstraint
from learnloop_environments.errors import ConfigError
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
