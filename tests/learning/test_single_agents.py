"""A hierarchy reaches what flat DQN does not, on held-out episodes of the exported policy."""

import numpy as np
from bench.algorithms.tasks import TASKS, held_out_return


def test_a_hierarchy_opens_the_door_that_flat_dqn_never_finds() -> None:
    task = TASKS["hierarchical-dqn"]
    ours, theirs = (
        np.asarray([held_out_return(task.environment, side, task.steps, seed, 100) for seed in range(2)])
        for side in (task.ours, task.baseline)
    )
    assert (ours > 0.9).all()
    assert (theirs < 0.5).all()
