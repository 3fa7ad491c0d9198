"""Independent DQN, QMIX and MADDPG are their equations, and lose nothing at a checkpoint."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import maddpg, qmix
from learnloop_trainer.distributed import Alone
from learnloop_trainer.neural.networks import forward
from learnloop_trainer.replay import Transitions
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
SMALL = {"environments": 4, "hidden": [8], "bufferSize": 1000, "learningStarts": 64, "batchSize": 32}
TEAMS = [("independent-dqn", "teams:TwoStep"), ("qmix", "teams:TwoStep"), ("maddpg", "teams:Relay")]


def order_of(make_order: Callable[..., Order], algorithm: str, name: str, **changes) -> Order:
    given = {"hyperparameters": SMALL, "data": {"environment": name}}
    return make_order(algorithm, steps=2048, **{**given, **changes})


@given(seed=st.integers(0, 2**31 - 1))
def test_the_teams_value_never_falls_when_an_agents_value_rises(seed: int) -> None:
    agents, width = 3, 4
    network = qmix.init(hyperparameters("qmix", hidden=[8], embedding=8), agents, width, 2, seed, CPU)
    random = np.random.default_rng(seed)
    state = torch.from_numpy(random.normal(size=(64, agents * width)).astype(np.float32) * 5)
    values = torch.from_numpy(random.normal(size=(64, agents)).astype(np.float32) * 10).requires_grad_()
    (slope,) = torch.autograd.grad(qmix.mix(network.leaves, values, state).sum(), values)
    assert (slope >= 0).all()
    assert slope.max() > 0
    best = forward(network.leaves, "q", "relu", torch.zeros(1, width)).argmax(1)
    assert best.shape == (1,)


def test_the_greedy_joint_action_is_the_best_of_all_joint_actions() -> None:
    agents, actions = 2, 3
    network = qmix.init(hyperparameters("qmix", hidden=[8], embedding=8), agents, 2, actions, 5, CPU)
    state = torch.randn(1, agents * 2, generator=torch.Generator().manual_seed(0))
    values = forward(network.leaves, "q", "relu", state.view(agents, 2))
    joint = {
        (one, two): float(qmix.mix(network.leaves, torch.stack((values[0, one], values[1, two]))[None], state))
        for one in range(actions)
        for two in range(actions)
    }
    assert max(joint, key=lambda pair: joint[pair]) == tuple(values.argmax(1).tolist())


def test_qmixs_loss_is_the_papers_with_the_teams_mean_reward_and_nothing_after_the_end() -> None:
    parameters = hyperparameters("qmix", hidden=[4], embedding=4)
    network = qmix.init(parameters, 2, 3, 2, 0, CPU)
    observations = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    action, reward = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[2.0, 4.0], [1.0, 1.0]])
    batch = Transitions(observations, observations.flip(0), action, reward, torch.tensor([1.0, 0.0]))
    leaves = {name: leaf.detach() for name, leaf in network.leaves.items()}

    def value(row: int, chosen: list[int] | None) -> float:
        q = forward(leaves, "q", "relu", observations[row].view(2, 3))
        picked = q.max(1).values if chosen is None else q[[0, 1], chosen]
        return float(qmix.mix(leaves, picked[None], observations[row][None]))

    goals = [3.0 + 0.5 * value(1, None), 1.0]
    expected = (value(0, [0, 1]) - goals[0]) ** 2 + (value(1, [1, 1]) - goals[1]) ** 2
    assert float(qmix.loss(leaves, leaves, batch, 0.5, 2)) == pytest.approx(expected, rel=1e-5)


def test_for_an_agents_own_value_only_its_own_action_is_replaced() -> None:
    done, own = torch.zeros(1, 3, 2), torch.ones(1, 3, 2)
    mixed = maddpg.replaced(done, own)
    assert mixed.shape == (1, 3, 3, 2)
    assert torch.equal(mixed[0, :, :, 0], torch.eye(3))


def test_a_central_critic_sees_what_the_others_do_and_an_own_one_does_not() -> None:
    states = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(0))
    for centralized in (True, False):
        parameters = hyperparameters("maddpg", hidden=[8], centralized=centralized)
        _, critic = maddpg.init(parameters, 2, 3, 1, 0, CPU)
        quiet, loud = torch.zeros(1, 2, 1), torch.tensor([[[0.0], [1.0]]])
        values = [maddpg.value(critic.leaves, states, maddpg.joint(a), centralized=centralized) for a in (quiet, loud)]
        assert (values[0][0, 0] != values[1][0, 0]).item() is centralized
        assert values[0][0, 1] != values[1][0, 1]


@pytest.mark.parametrize(("algorithm", "name"), TEAMS)
def test_an_interrupted_team_ends_with_the_same_weights_to_the_last_bit(make_order, algorithm, name):
    assert goes_on_exactly(order_of(make_order, algorithm, name), 3, 3).learner.network.updates > 10


@pytest.mark.parametrize(
    ("algorithm", "name", "problem"),
    [
        ("ppo", "teams:TwoStep", "has a team of agents, ppo trains one; set algorithm to qmix"),
        ("qmix", "CartPole-v1", "has one agent, qmix trains teams"),
        ("qmix", "teams:Relay", "has continuous actions, qmix needs discrete ones; set algorithm to maddpg"),
        (
            "maddpg",
            "teams:TwoStep",
            "has discrete actions, maddpg needs continuous or hybrid ones; set algorithm to ind",
        ),
    ],
)
def test_team_algorithms_and_environments_that_do_not_fit_are_refused(make_order, algorithm, name, problem):
    order = make_order(algorithm, hyperparameters={}, data={"environment": name})
    with pytest.raises(ConfigError, match=rf"spec.data.environment: '{name}' {problem}"):
        begin(order, Alone(), CPU)
