"""Teams whose every action is a choice and numbers that go with it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from as_gymnasium import Parallel
from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.gymnasium_vectors import TeamVector
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import Bounds, middle
from learnloop_environments.wrappers import innermost
from learnloop_trainer.algorithms import maddpg
from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.rank import run

CPU = torch.device("cpu")
SMALL = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
AMOUNTS = Bounds(np.asarray([0, -3, 0], np.float32), np.asarray([2, 5, 1], np.float32), choices=3)


def test_scaling_there_and_back_keeps_choices_and_numbers() -> None:
    actions = np.asarray([[0, -3, 0.5], [1, 1, 0], [2, 5, 1]], dtype=np.float32)
    assert AMOUNTS.scale(AMOUNTS.unscale(actions)) == pytest.approx(actions)


def test_critics_are_told_the_choice_as_a_one_hot_vector() -> None:
    chosen = torch.from_numpy(middle(np.asarray([[0, 2]]), 3))
    actions = maddpg.critic_actions(torch.cat((chosen[..., None], torch.full((1, 2, 1), 0.25)), 2), 3)
    assert actions.tolist() == [[[1, 0, 0, 0.25], [0, 0, 1, 0.25]]]


def test_the_actor_takes_its_best_choice_and_learns_from_the_value_expected_over_all(make_order):
    order = make_order("maddpg", hyperparameters=SMALL, data={"environment": "teams:RelayHybrid"})
    learner = begin(order, Alone(), CPU).learner
    observations = torch.from_numpy(learner.environment.reset()[:1])
    likely, numbers = maddpg.likelihood(learner.network.leaves, observations, 3)
    best = maddpg.policy(learner.network.leaves, observations, 3)
    assert likely.sum(2).tolist() == [[pytest.approx(1), pytest.approx(1)]]
    assert torch.equal(best[..., :3].argmax(2), likely.argmax(2))
    assert torch.equal(best[..., 3:], numbers)
    done = maddpg.critic_actions(torch.zeros(1, 2, 2), 3)
    expected = 0.0
    for agent in range(2):
        for choice in range(3):
            action = done.clone()
            action[0, agent] = torch.cat((torch.eye(3)[choice], numbers[0, agent]))
            worth = maddpg.value(learner.critic.leaves, observations, maddpg.joint(action), centralized=True)[0, agent]
            expected += float((likely[0, agent, choice] * worth).detach())
    assert float(learner._expected(observations, done).detach()) == pytest.approx(expected, rel=1e-4)


def test_a_choice_is_drawn_at_random_as_often_as_the_noise_is_large() -> None:
    actor, _ = maddpg.init(hyperparameters("maddpg", hidden=[8]), 2, 3, 2, 0, CPU, 3)
    observations, draws = np.zeros((5000, 2, 3), dtype=np.float32), np.random.default_rng(0).random((2, 5000, 2))
    draws[0] -= 0.3
    taken = maddpg.act(actor, observations, np.zeros((5000, 2, 2)), 3, draws)
    calm = maddpg.act(actor, observations, np.zeros((5000, 2, 2)), 3)
    assert (taken[..., 0] != calm[..., 0]).mean() == pytest.approx(0.3 * 2 / 3, abs=0.02)
    assert np.array_equal(taken[..., 1], calm[..., 1])


def test_who_speaks_stands_still_and_who_moves_is_silent() -> None:
    world = innermost(make("teams:CooperativeHybrid", Split.TRAINING, 0, range(2)))
    before = world.body["place"].copy()
    actions = np.zeros((2, 3, 4), dtype=np.float32)
    actions[..., 1:] = (0.4, 0.2, 0.9)
    actions[:, 0, 0] = 1  # the first agent speaks
    world.step(actions)
    moved = world.body["place"] - before
    assert (moved[:, 0] == 0).all()
    assert moved[:, 1:].any(axis=2).all()
    assert world.body["signal"].tolist() == pytest.approx(np.array([[0.9, 0, 0]] * 2))


def test_a_pettingzoo_team_with_hybrid_actions_is_told_its_own_kind_of_action() -> None:
    names = range(3)
    native = make("teams:CooperativeHybrid", Split.TRAINING, 0, names)
    foreign = TeamVector("mine:team", Split.TRAINING, 0, names, lambda: Parallel("teams:CooperativeHybrid"))
    assert (foreign.bounds.choices, foreign.actions, foreign.agents) == (2, 4, 3)
    actions = np.concatenate((np.ones((3, 3, 1)), np.full((3, 3, 3), 0.5)), axis=2).astype(np.float32)
    foreign.reset()
    signals = foreign.step(actions).successor[..., -8:-6]  # the others' signals, before two one-hot names
    assert signals.tolist() == native.step(actions).successor[..., -5:-3].tolist()
    assert (signals == 0.5).all()


@pytest.mark.parametrize("name", ["teams:CooperativeHybrid", "teams:RelayHybrid"])
def test_a_hybrid_teams_run_is_proven_and_exported(make_order, tmp_path, monkeypatch, name):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    order = make_order(
        "maddpg", steps=512, hyperparameters=SMALL, data={"environment": name}, evaluation={"episodes": 4}
    )
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    assert proof.parity.passed


def test_a_hybrid_team_is_sent_to_the_algorithm_that_learns_it(make_order: Callable[..., Order]) -> None:
    order = make_order("qmix", hyperparameters=SMALL, data={"environment": "teams:RelayHybrid"})
    with pytest.raises(ConfigError, match="qmix needs discrete ones; set algorithm to maddpg"):
        begin(order, Alone(), CPU)
