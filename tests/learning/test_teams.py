"""Team algorithms learn what learning alone does not, on held-out episodes of the exported policy."""

import numpy as np
import pytest

from testing.training.learned_tasks import TASKS, held_out_return, improvement


def test_qmix_finds_the_better_game_that_independent_learners_miss() -> None:
    task = TASKS["qmix"]
    ours, independent = (
        np.asarray([held_out_return(task.environment, side, task.steps, seed, 4) for seed in range(3)])
        for side in (task.ours, task.baseline)
    )
    assert ours.tolist() == [8, 8, 8]
    assert independent.tolist() == [7, 7, 7]


@pytest.mark.timeout(300)
def test_central_critics_teach_the_speaker_what_its_own_critic_does_not() -> None:
    task = TASKS["maddpg"]
    ours, own_critics = (
        np.asarray([held_out_return(task.environment, side, task.steps, seed) for seed in range(3)])
        for side in (task.ours, task.baseline)
    )
    assert ours.mean() > -0.2, "an answer without the signal earns -1"
    low, _ = improvement(ours, own_critics, 0)
    assert low > 0


def test_a_hybrid_team_learns_what_to_do_and_passes_on_how_much_of_it() -> None:
    task = TASKS["maddpg-hybrid"]
    ours = held_out_return(task.environment, task.ours, task.steps, 0)
    assert ours > -1, "the right kind, without the signal, earns -1 at best"
