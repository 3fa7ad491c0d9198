"""Replay hands out transitions in proportion to their priorities."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.distributed import Alone
from learnloop_trainer.replay import Priorities, Replay, SumTree
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
SMALL = {
    "environments": 8,
    "bufferSize": 1000,
    "batchSize": 32,
    "learningStarts": 64,
    "hidden": [16],
    "prioritized": True,
}


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 1e6)), min_size=1, max_size=60), st.data())
@settings(max_examples=2 * settings().max_examples)
def test_the_tree_finds_what_a_running_sum_finds(changes: list[tuple[int, float]], data: st.DataObject) -> None:
    tree, plain = SumTree(13), np.zeros(13)
    for leaf, value in changes:
        tree.put(np.asarray([leaf]), np.asarray([value]))
        plain[leaf] = value
    assert tree.leaves().tolist() == plain.tolist()
    assert tree.total == pytest.approx(plain.sum())
    again = SumTree(13)
    again.fill(tree.leaves())
    assert np.array_equal(again._nodes, tree._nodes)
    if tree.total > 0:
        share = data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
        indices = tree.find(np.asarray(share) * tree.total)
        assert (plain[indices] > 0).all()
        after = np.cumsum(plain)[indices]
        mass, slack = np.asarray(share) * tree.total, 1e-9 * tree.total
        assert (after >= mass - slack).all()
        assert (after - plain[indices] <= mass + slack).all()


def test_transitions_are_drawn_in_proportion_to_their_errors_and_weights_undo_it() -> None:
    priorities = Priorities(environments=2, length=4, exponent=1.0)
    for slot in range(2):
        priorities.added(slot)
    leaves = np.arange(4)
    priorities.learned(leaves, np.asarray([1.0, -2.0, 3.0, 4.0], dtype=np.float32))
    draws = np.random.default_rng(0).random(20_000)
    counts = np.bincount(priorities.sample(draws), minlength=8)
    assert counts / 20_000 == pytest.approx([0.1, 0.2, 0.3, 0.4, 0, 0, 0, 0], abs=1e-3)
    assert priorities.weights(leaves, 4, 1.0) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)
    priorities.added(2)
    assert priorities.tree.leaves()[4:6] == pytest.approx([4, 4], rel=1e-5)


@pytest.mark.parametrize("bad", [np.ones(7), np.full(8, -1.0), np.full(8, np.nan)])
def test_priorities_that_do_not_fit_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="do not fit 8 transitions"):
        Priorities(2, 4, 0.6).restore({"priorities": bad, "priorities.largest": np.ones(1)})


def test_an_interrupted_run_with_priorities_ends_with_the_same_state_to_the_last_bit(make_order):
    assert goes_on_exactly(make_order("dqn", steps=4000, hyperparameters=SMALL), 3, 3).learner.network.updates > 100


def test_every_stored_transition_has_a_priority_and_belongs_to_one_rank() -> None:
    parameters = hyperparameters("dqn", **SMALL)
    members = np.asarray([0, 5, 3, 7])
    halves = [Replay(range(4), 9, 1), Replay(range(4, 8), 9, 1)]
    assert np.array_equal(halves[0].local_mask(members), ~halves[1].local_mask(members))
    environment = make("CartPole-v1", Split.TRAINING, 0, range(8))
    learner = Dqn(parameters, environment, Occasion(0, 1000, 8, Alone()), CPU)
    learner.iterate(environment.reset())
    stored = learner.priorities.tree.leaves()
    assert (stored[: 8 * learner.replay.filled] > 0).all()
    assert not stored[8 * learner.replay.filled :].any()
