"""SAC, the native Pendulum, and graphs with continuous actions."""

import math
from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import Bounds, make
from learnloop_environments.cartpole_and_pendulum import Pendulum
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, sac
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export import OnnxPolicy, build, check
from learnloop_trainer.export.exported_policy import trained
from learnloop_trainer.neural.networks import Network, forward
from learnloop_trainer.replay import Transitions
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
SMALL = {"environments": 4, "bufferSize": 1000, "batchSize": 32, "learningStarts": 64, "hidden": [16, 16]}
COUNT = 21


def test_native_pendulum_equals_gymnasium_step_by_step_through_ends_and_resets() -> None:
    count, random = 4, np.random.default_rng(3)
    native = Pendulum(Split.TRAINING, 0, range(count))
    peers = [gymnasium.make("Pendulum-v1") for _ in range(count)]
    truncations = 0
    for step in range(420):
        state = native.state()
        for peer, own, age in zip(peers, state["body"], state["age"], strict=True):
            if age == 0:
                peer.reset()
            peer.unwrapped.state = np.array(own)
        action = random.uniform(-3, 3, (count, 1)).astype(np.float32)  # beyond the bounds too
        ours = native.step(action)
        for n, peer in enumerate(peers):
            observation, reward, terminated, truncated, _ = peer.step(action[n])
            assert ours.successor[n] == pytest.approx(observation, abs=1e-6), step
            assert ours.reward[n] == pytest.approx(reward, rel=1e-5, abs=1e-6)
            assert (ours.terminated[n], ours.truncated[n]) == (terminated, truncated)
            truncations += int(truncated)
    assert truncations == 2 * count
    starts = native.state()["body"][:, 0]
    assert len(set(starts.tolist())) == count
    assert Pendulum(Split.TRAINING, 0, range(2, 3)).reset().tolist() == native.reset()[2:3].tolist()


def test_gymnasiums_bounded_actions_are_taken_as_they_are() -> None:
    environment = make("MountainCarContinuous-v0", Split.TRAINING, 0, range(2))
    assert (environment.actions, environment.bounds.low.tolist(), environment.bounds.high.tolist()) == (1, [-1], [1])
    environment.reset()
    step = environment.step(np.asarray([[1.0], [-1.0]], dtype=np.float32))
    assert step.successor[0, 1] > step.successor[1, 1]
    environment.close()


@pytest.mark.parametrize(("algorithm", "name"), [("sac", "CartPole-v1"), ("dqn", "Pendulum-v1")])
def test_actions_that_do_not_fit_the_algorithm_are_refused_with_field_and_fix(make_order, algorithm, name):
    order = make_order(algorithm, hyperparameters={}, data={"environment": name})
    with pytest.raises(
        ConfigError, match=rf"spec.data.environment: '{name}' has .* {algorithm} needs .*; set algorithm"
    ):
        begin(order, Alone(), CPU)


def networks(dimensions: int = 2) -> list[Network]:
    parameters = hyperparameters("sac", **SMALL)
    made = sac.init(parameters, 3, dimensions, 0, CPU)
    for number, network in enumerate(made):
        noise = torch.randn(network.vector.shape, generator=torch.Generator().manual_seed(number))
        network.vector.add_(noise * 0.2)
    return made


def batch(dimensions: int = 2) -> tuple[Transitions, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(shape, generator=random)  # noqa: E731
    alive = (draw(COUNT) < 1).float()
    action = torch.tanh(draw(COUNT, dimensions))
    return Transitions(draw(COUNT, 3), draw(COUNT, 3), action, draw(COUNT), alive), draw(2, COUNT, dimensions)


def sampled(actor: Network, observation: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equation 26 with torch's own distributions."""
    mean, log_deviation = forward(actor.leaves, "actor", "relu", observation).chunk(2, 1)
    deviation = log_deviation.clamp(-20, 2).exp()
    normal = torch.distributions.Normal(mean, deviation)
    squash = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform(cache_size=1)])
    action = squash.transforms[0](mean + deviation * noise)
    return action, squash.log_prob(action).sum(1)


def value(critics: Network, index: int, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return forward(critics.leaves, f"critic{index}", "relu", torch.cat((observation, action), 1)).squeeze(1)


def test_sacs_gradients_are_autograds_of_equations_5_and_9() -> None:
    parameters, (actor, critics, temperature) = hyperparameters("sac", **SMALL), networks()
    data, noise = batch()
    update = sac.SacUpdate(
        [actor, critics, temperature], critics.vector.clone(), parameters, Occasion(0, 1, 1, Alone())
    )
    alpha = temperature.vector.exp()
    with torch.no_grad():
        action, density = sampled(actor, data.successor, noise[1])
        future = torch.minimum(*(value(critics, i, data.successor, action) for i in range(2))) - alpha * density
        goal = data.reward + 0.99 * data.alive * future
    with torch.inference_mode():
        actions, densities = update.sample(data, noise)
        ours = update.goal(data, actions[1], densities[1], alpha)
    assert torch.allclose(ours, goal, atol=1e-5)
    loss = sum((0.5 * (value(critics, i, data.observation, data.action) - goal).square()).mean() for i in range(2))
    loss.backward()
    expected = critics.gradient.clone()
    with torch.inference_mode():
        update.by_critics(data, ours, COUNT)
    assert torch.allclose(critics.gradient, expected, atol=1e-5)

    action, density = sampled(actor, data.observation, noise[0])
    least = torch.minimum(*(value(critics, i, data.observation, action) for i in range(2)))
    (alpha * density - least).mean().backward()
    expected, untouched = actor.gradient.clone(), critics.gradient.clone()
    with torch.inference_mode():
        update.by_policy(data, actions[0], alpha, COUNT)
    assert torch.allclose(densities[0], density, atol=1e-4)
    assert torch.allclose(actor.gradient, expected, atol=1e-5)
    assert torch.equal(critics.gradient, untouched)


def test_the_temperature_rises_while_the_policy_is_less_random_than_wanted_and_targets_follow_slowly() -> None:
    parameters = hyperparameters("sac", **SMALL, targetEntropyScale=100)
    made = networks()
    made[2].vector.zero_()
    target = made[1].vector.clone()
    data, noise = batch()
    with torch.inference_mode():
        sac.SacUpdate(made, target, parameters, Occasion(0, 1, 1, Alone())).run(data, noise, COUNT)
    assert float(made[2].vector) == pytest.approx(-parameters.learning_rate, rel=1e-3)  # entropy far above -200
    assert 0 < float((target - made[1].vector).abs().max()) <= parameters.learning_rate * 1.001


def test_an_interrupted_sac_run_ends_with_the_same_state_to_the_last_bit(make_order: Callable[..., Order]) -> None:
    goes_on_exactly(make_order("sac", steps=4000, hyperparameters=SMALL, data={"environment": "Pendulum-v1"}), 2, 1)


def test_the_graph_squashes_scales_and_never_leaves_the_bounds() -> None:
    actor, bounds = networks()[0], Bounds(np.float32([-2, 0.1]), np.float32([0.7, 0.3]))
    policy = OnnxPolicy(build(actor.arrays(), "actor", "relu", {}, bounds), 3, 2, continuous=True)
    observations = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32) * np.float32(10)
    parity = check(trained(actor, "sac", bounds), policy, observations, 0)
    assert parity.passed
    assert parity.action_agreement == 1
    extreme, _ = policy.run(np.float32([[1e9, 1e9, 1e9], [-1e9, 1e9, -1e9]]))
    assert (extreme >= bounds.low).all()
    assert (extreme <= bounds.high).all()
    actor.vector.add_(0.01)
    assert not check(trained(actor, "sac", bounds), policy, observations, 0).passed


def test_noise_makes_actions_of_the_wanted_distribution() -> None:
    zeros = {"actor.0.weight": np.zeros((3, 2), np.float32), "actor.0.bias": np.float32([0.5, math.log(0.1)])}
    normal = np.random.default_rng(0).standard_normal((20_000, 1))
    actions = sac.act(zeros, np.zeros((20_000, 3), np.float32), normal)
    before = np.arctanh(actions.astype(np.float64))
    assert (before.mean(), before.std()) == (pytest.approx(0.5, abs=0.01), pytest.approx(0.1, rel=0.02))
