"""Learners of one agent on small tasks, judged by held-out episodes of the exported policy."""

from testing.training.learned_tasks import TASKS, Side, held_out_return

NUMBERS = {"environments": 16, "horizon": 128, "epochs": 10, "minibatches": 16}
NUMBERS |= {"learningRate": 3e-3, "discount": 0.95, "entropyCoefficient": 0}


def test_a_hierarchy_opens_the_door_that_flat_dqn_never_finds() -> None:
    task = TASKS["hierarchical-dqn"]
    assert held_out_return(task.environment, task.ours, task.steps, 0, 100) > 0.9
    assert held_out_return(task.environment, task.baseline, task.steps, 0, 100) < 0.5


def test_ppo_with_numbers_for_actions_swings_the_pendulum_up() -> None:
    side = Side("ppo", NUMBERS | {"normaliseObservations": True})
    assert held_out_return("Pendulum-v1", side, 100_000, 0, 100) > -250, "at random it is below -1000"


def test_ppo_learns_what_to_choose_and_how_much_of_it() -> None:
    side = Side("ppo", NUMBERS | {"environments": 32, "horizon": 64, "epochs": 6, "discount": 0.97})
    assert held_out_return("motion:Courier", side, 80_000, 0, 200) > 1.5, "at random it is below 0; the best is about 2"
