"""The episodes that prove a run, and their names in its proof."""

from collections.abc import Callable

import numpy as np
import pytest

from learnloop_api.kinds.training.evaluation import DIMENSIONS, EPISODES_PER_RUN
from learnloop_environments.randomness import Split
from learnloop_environments.wrappers import innermost
from learnloop_trainer.evaluation.held_out_episodes import episodes, held_out
from learnloop_trainer.evaluation.suite import disturbances
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_proof import VALIDATION

EVALUATION = {"episodes": 8, "seed": 5, "firstEpisode": 3 * EPISODES_PER_RUN}


def starts(order: Order, count: int = 8, first: int = 0, split: Split = Split.HELD_OUT) -> set[bytes]:
    environment = held_out(order, first=first, split=split)(range(count))
    return {row.tobytes() for row in np.asarray(innermost(environment).reset())}


@pytest.mark.parametrize("environment", ["CartPole-v1", "motion:Navigation"])
def test_runs_that_begin_at_other_numbers_meet_other_episodes(make_order, environment):
    data = {"environment": environment}
    one = make_order(evaluation=EVALUATION, data=data)
    other = make_order(evaluation={**EVALUATION, "firstEpisode": 4 * EPISODES_PER_RUN}, data=data)
    assert not starts(one) & starts(other)
    assert starts(one) == starts(make_order(evaluation=EVALUATION, data=data, seed=9))


def test_left_out_the_runs_own_seed_and_its_first_episodes_prove_it(make_order: Callable[..., Order]) -> None:
    assert starts(make_order(seed=4)) == starts(make_order(evaluation={"episodes": 8, "seed": 4, "firstEpisode": 0}))


def test_all_that_a_run_may_play_has_room_before_the_next_runs_episodes() -> None:
    assert disturbances.FIRST + len(DIMENSIONS) * disturbances.ROOM * disturbances.PER_CONDITION <= EPISODES_PER_RUN
    assert VALIDATION + 10_000 <= disturbances.FIRST


def test_episodes_of_training_stay_where_the_runs_seed_has_them(make_order: Callable[..., Order]) -> None:
    one, other = make_order(), make_order(evaluation=EVALUATION)
    assert starts(one, split=Split.TRAINING) == starts(other, split=Split.TRAINING)


def test_the_proof_names_the_episodes_and_the_policy_compared_with(make_order: Callable) -> None:
    chosen = episodes(make_order(evaluation=EVALUATION))
    assert (chosen.seed, chosen.first, chosen.episodes) == (5, 3 * EPISODES_PER_RUN, 8)
