"""Learners of one agent on small tasks, judged by held-out episodes of the exported policy."""

import numpy as np

from testing.training.learned_tasks import TASKS, Side, held_out_return

NUMBERS = {"environments": 16, "horizon": 128, "epochs": 10, "minibatches": 16}
NUMBERS |= {"learningRate": 3e-3, "discount": 0.95, "entropyCoefficient": 0}


def test_a_hierarchy_opens_the_door_that_flat_dqn_never_finds() -> None:
    task = TASKS["hierarchical-dqn"]
    ours, theirs = (
        np.asarray([held_out_return(task.environment, side, task.steps, seed, 100) for seed in range(2)])
        for side in (task.ours, task.baseline)
    )
    assert (ours > 0.9).all()
    assert (theirs < 0.5).all()


def test_ppo_as_it_is_by_default_balances_the_pole() -> None:
    assert held_out_return("CartPole-v1", Side("ppo", {}), 60_000, 1, 20) > 300


def test_ppo_with_numbers_for_actions_swings_the_pendulum_up() -> None:
    side = Side("ppo", NUMBERS | {"normaliseObservations": True})
    assert held_out_return("Pendulum-v1", side, 100_000, 0, 100) > -250, "at random it is below -1000"


def test_ppo_learns_what_to_choose_and_how_much_of_it() -> None:
    side = Side("ppo", NUMBERS | {"environments": 32, "horizon": 64, "epochs": 6, "discount": 0.97})
    assert held_out_return("motion:Courier", side, 80_000, 0, 200) > 1.5, "at random it is below 0; the best is about 2"
