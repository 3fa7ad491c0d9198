"""Both algorithms learn, and their updates are the equations they claim to be."""

from collections import deque

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import Parameters, hyperparameters
from learnloop_environments import Step
from learnloop_trainer.algorithms import Learner, Occasion, dqn, learner, ppo
from learnloop_trainer.algorithms.action_heads import Categorical
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import NumericError
from learnloop_trainer.floating_point import require_learned
from learnloop_trainer.neural.networks import Network, dense
from learnloop_trainer.replay import Transitions

CPU = torch.device("cpu")


class Identity:
    """Reward 1 for naming the number seen; episodes of 4 steps."""

    observations, actions, bounds = 3, 3, None

    def __init__(self, members: range, poison: float = 0.0) -> None:
        self.members, self._random, self._poison = members, np.random.default_rng(0), poison
        self._states, self._age = self._random.integers(0, 3, len(members)), 0

    def reset(self) -> np.ndarray:
        return np.eye(3, dtype=np.float32)[self._states]

    def step(self, actions: np.ndarray) -> Step:
        reward = (actions == self._states).astype(np.float32) + np.float32(self._poison)
        self._states, self._age = self._random.integers(0, 3, len(self.members)), self._age + 1
        ended = np.full(len(self.members), self._age % 4 == 0)
        return Step(self.reset(), self.reset(), reward, ended, np.zeros_like(ended))

    def state(self) -> None:
        return None

    def restore(self, state) -> np.ndarray:
        return self.reset()

    def close(self) -> None: ...


def trained(parameters: Parameters, environment, steps: int) -> tuple[Learner, list[float]]:
    occasion = Occasion(0, steps, parameters.environments, Alone())
    algorithm, observation = learner(parameters, environment, occasion, CPU), environment.reset()
    rewards: deque[float] = deque(maxlen=8)
    while algorithm.step < steps:
        observation, happened = algorithm.iterate(observation)
        rewards.append(float(happened[0].reward.mean()))
    return algorithm, list(rewards)


@pytest.mark.parametrize(
    "parameters",
    [
        hyperparameters("ppo", environments=16, horizon=16, hidden=[16], learning_rate=1e-2, minibatches=2),
        hyperparameters("dqn", environments=16, hidden=[16], learning_rate=1e-2, batch_size=64, learning_starts=64),
    ],
)
def test_each_algorithm_learns_to_name_what_it_sees(parameters: Parameters) -> None:
    _, rewards = trained(parameters, Identity(range(16)), 6000)
    assert np.mean(rewards[-3:]) > 0.9


@pytest.mark.parametrize(
    ("poison", "parameters"),
    [
        (np.nan, hyperparameters("ppo", environments=4, horizon=4, hidden=[4])),
        (np.inf, hyperparameters("dqn", environments=4)),
    ],
)
def test_a_reward_that_is_not_finite_ends_the_run_and_is_named(poison: float, parameters) -> None:
    with pytest.raises(NumericError, match=r"reward is not finite at step \d+; check the environment's rewards"):
        trained(parameters, Identity(range(4), poison), 1000)


def test_a_learning_rate_that_blows_the_weights_up_ends_the_run() -> None:
    parameters = hyperparameters("ppo", environments=4, horizon=4, hidden=[4], learning_rate=1)
    algorithm = ppo.Ppo(parameters, Identity(range(4)), Occasion(0, 100, 4, Alone()), CPU)
    algorithm.network.vector[0] = float("nan")
    message = "loss is not finite at step 16, and no observation or reward is large; lower the learning rate"
    with pytest.raises(NumericError, match=message):
        algorithm.iterate(algorithm.environment.reset())


class Far(Identity):
    """As Identity, but the second number of an observation is `far` away."""

    def __init__(self, members: range, far: float) -> None:
        super().__init__(members)
        self._far = np.float32(far)

    def reset(self):
        return self._moved(super().reset())

    def step(self, actions) -> Step:
        step = super().step(actions)
        observation, after = self._moved(step.observation), self._moved(step.successor)
        return Step(observation, after, step.reward, step.terminated, step.truncated)

    def _moved(self, observation):
        return np.where(np.arange(observation.shape[1]) == 1, self._far, observation).astype(np.float32)


FRAGILE = hyperparameters("dqn", environments=4, learning_starts=4, batch_size=4)


def test_an_observation_that_is_too_large_is_named_and_no_reward_is_blamed() -> None:
    message = r"loss is not finite at step \d+: number 1 of an observation, counted from 0, has reached 3e\+30; scale"
    with pytest.raises(NumericError, match=message):
        trained(FRAGILE, Far(range(4), 3e30), 4000)


def test_a_reward_that_is_too_large_is_named_with_its_size() -> None:
    lost, observations = torch.tensor(float("nan")), np.ones((2, 4, 3), dtype=np.float32)
    message = r"loss is not finite at step 7: a reward has reached 3e\+30; scale the environment's rewards"
    with pytest.raises(NumericError, match=message):
        require_learned(7, lost, observations, np.asarray([1.0, -3e30], dtype=np.float32))
    require_learned(7, torch.tensor(1.0), observations, np.asarray([np.nan]))  # the weights are what counts


def test_which_number_of_an_observation_is_no_number_is_said() -> None:
    parameters = hyperparameters("ppo", environments=4, horizon=4, hidden=[4])
    with pytest.raises(
        NumericError, match=r"observation: number 1 of it, counted from 0, is not finite at step \d+; check"
    ):
        trained(parameters, Far(range(4), np.nan), 100)


def test_the_double_q_target_takes_the_online_networks_action_and_the_target_networks_value() -> None:
    def values(*q: float) -> dict[str, torch.Tensor]:  # the same Q-values in every state
        return {"q.0.weight": torch.zeros(1, len(q)), "q.0.bias": torch.tensor(q)}

    ones = torch.ones(2)
    batch = Transitions(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([0, 0]), ones, torch.tensor([1.0, 0.0]))
    # online prefers action 1; target gives it 3 (its own maximum is 7): y = 1 + .5*3 and, terminated, y = 1
    result = dqn.loss(values(1.0, 2.0), values(7.0, 3.0), batch, 0.5)
    assert float(result) == pytest.approx((1 - 2.5) ** 2 + (1 - 1) ** 2)


def test_the_first_ppo_loss_is_minus_the_advantages_plus_value_and_entropy_terms() -> None:
    parameters, head = hyperparameters("ppo", hidden=[4]), Categorical(2)
    network = ppo.init(parameters, 3, head, 0, CPU)
    network.vector.zero_()  # uniform policy, value 0
    half = torch.full((5,), float(np.log(0.5)))
    advantage, target = torch.tensor([1.0, -2, 3, 0, 5]), torch.arange(5.0)
    batch = ppo.SampleBatch(torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 0]), half, advantage, target)
    expected = -advantage.sum() + 0.25 * target.square().sum() - 0.01 * 5 * np.log(2)
    assert ppo.loss(network.leaves, head, batch, parameters).item() == pytest.approx(float(expected), rel=1e-6)


def test_adam_on_the_flat_vector_is_the_papers_algorithm_1_with_a_clipped_gradient() -> None:
    network = Network(dense("q", [3, 5, 2], 1.0, 0, 0), CPU)
    theta = network.vector.double().numpy().copy()
    mean, square, random = np.zeros_like(theta), np.zeros_like(theta), np.random.default_rng(0)
    for t in range(1, 6):
        gradient = random.normal(size=len(theta))
        network.gradient.copy_(torch.from_numpy(gradient))
        gradient *= min(1, 0.5 / np.linalg.norm(gradient))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        theta -= 0.01 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-5)
        network.adam(0.01, 0.5)
    assert np.allclose(network.vector.numpy(), theta, atol=1e-5)
    assert torch.equal(network.leaves["q.0.bias"], network.vector[15:20])
    assert not network.gradient.any()
