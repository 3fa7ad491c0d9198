"""Gradients worked out by hand are autograd's of the papers' losses."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments.spaces import Bounds
from learnloop_trainer.algorithms import action_heads, dqn, ppo
from learnloop_trainer.neural.networks import MAX_SIZES, Network, Stack, dense, forward, side_by_side
from learnloop_trainer.replay import Transitions

CPU = torch.device("cpu")
COUNT = 33


def shaken(network: Network) -> Network:
    """Away from the start, where biases are 0 and the policy is uniform."""
    network.vector.add_(torch.randn(network.vector.shape, generator=torch.Generator().manual_seed(0)) * 0.3)
    return network


def by_autograd(network: Network, loss: torch.Tensor) -> torch.Tensor:
    (loss / COUNT).backward()
    gradient = network.gradient.clone()
    network.gradient.fill_(7.0)  # what is left here must be replaced, not added to
    return gradient


@pytest.mark.parametrize(
    ("actions", "hidden", "dual_clip"), [(2, [8], None), (5, [7, 9, 5], None), (5, [8], 1.5), (2, [8], 1.0)]
)
def test_ppos_gradient_is_autograds(actions: int, hidden: list[int], dual_clip: float | None) -> None:
    random = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(shape, generator=random)  # noqa: E731
    parameters = hyperparameters("ppo", hidden=hidden, dual_clip=dual_clip)
    head = action_heads.Categorical(actions)
    network = shaken(ppo.init(parameters, 4, head, 0, CPU))
    action, log_prob = torch.arange(COUNT) % actions, draw(COUNT) * 0.5 - np.log(actions)  # most ratios are clipped
    batch = ppo.SampleBatch(draw(COUNT, 4), action, log_prob, draw(COUNT), draw(COUNT))
    expected = by_autograd(network, ppo.loss(network.leaves, head, batch, parameters))
    with torch.inference_mode():
        ppo.PpoGradients(network, head, parameters).compute(batch, COUNT)
    assert torch.allclose(network.gradient, expected, atol=1e-6)


@pytest.mark.parametrize("choices", [0, 3])
def test_ppos_gradient_is_autograds_with_numbers_for_actions_and_with_a_choice_beside_them(choices: int) -> None:
    random = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(shape, generator=random)  # noqa: E731
    ends = np.arange(1, 4 if choices else 3, dtype=np.float32)
    bounds = Bounds(-ends, ends, choices)
    head: action_heads.Head = action_heads.Hybrid(bounds) if choices else action_heads.Gaussian(bounds)
    parameters = hyperparameters("ppo", hidden=[9, 7], entropy_coefficient=0.1)
    network = shaken(ppo.init(parameters, 4, head, 0, CPU))
    network.views(network.vector)["log_deviation"][0] = action_heads.MOST + 1  # beyond its limit: gets no gradient
    action = draw(COUNT, len(ends))
    if choices:
        action[:, 0] = torch.arange(COUNT) % choices
    observations = draw(COUNT, 4)
    outputs = ppo.forward(network.leaves, "policy", "tanh", observations)
    log_prob = head.log_prob(network.leaves, outputs, action).detach() + 0.3 * draw(COUNT)
    batch = ppo.SampleBatch(observations, action, log_prob, draw(COUNT), draw(COUNT))
    expected = by_autograd(network, ppo.loss(network.leaves, head, batch, parameters))
    with torch.inference_mode():
        ppo.PpoGradients(network, head, parameters).compute(batch, COUNT)
    assert torch.allclose(network.gradient, expected, atol=1e-5)
    by_deviation = network.views(network.gradient)["log_deviation"]
    assert by_deviation[0] == 0
    assert (by_deviation[1:] != 0).all()


def test_densities_are_those_of_torchs_distributions() -> None:
    bounds = Bounds(-np.ones(3, dtype=np.float32), np.ones(3, dtype=np.float32), 4)
    head, random = action_heads.Hybrid(bounds), torch.Generator().manual_seed(1)
    outputs, numbers = torch.randn((7, 6), generator=random), torch.randn((7, 2), generator=random)
    leaves, chosen = {"log_deviation": torch.tensor([-0.5, 0.7])}, torch.arange(7) % 4
    normal = torch.distributions.Normal(outputs[:, 4:], leaves["log_deviation"].exp())
    choice = torch.distributions.Categorical(logits=outputs[:, :4])
    expected = normal.log_prob(numbers).sum(1) + choice.log_prob(chosen)
    assert torch.allclose(head.log_prob(leaves, outputs, torch.cat((chosen[:, None], numbers), 1)), expected)
    assert torch.allclose(head.entropy(leaves, outputs), normal.entropy().sum(1) + choice.entropy())


def test_dqns_gradient_is_autograds_and_importance_weights_multiply_the_squares() -> None:
    random = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(shape, generator=random)  # noqa: E731
    parameters = hyperparameters("dqn", hidden=[9, 7])
    network = shaken(dqn.init(parameters, 4, 3, 0, CPU))
    target = network.vector + 0.1 * draw(*network.vector.shape)
    action, alive = torch.arange(COUNT) % 3, (draw(COUNT) < 1).float()
    batch = Transitions(draw(COUNT, 4), draw(COUNT, 4), action, draw(COUNT), alive)
    expected = by_autograd(network, dqn.loss(network.leaves, network.views(target), batch, 0.99))
    gradients = dqn.DqnGradients(network, target, parameters.discount, range(len(parameters.hidden) + 1))
    with torch.inference_mode():
        errors = gradients.compute(batch, COUNT)
        assert torch.allclose(network.gradient, expected, atol=1e-6)
        gradients.compute(batch, COUNT, torch.full((COUNT,), 0.5))
    assert torch.allclose(network.gradient, expected / 2, atol=1e-6)
    goal = dqn.loss(network.leaves, network.views(target), batch, 0.99)
    assert float(errors.square().sum()) == pytest.approx(float(goal), rel=1e-5)


def test_gradients_stay_autograds_while_batches_of_more_sizes_come_than_places_are_kept() -> None:
    random = torch.Generator().manual_seed(1)
    parameters = hyperparameters("dqn", hidden=[6])
    network = shaken(dqn.init(parameters, 4, 3, 0, CPU))
    target = network.vector.clone()
    gradients = dqn.DqnGradients(network, target, parameters.discount, range(2))
    for size in [*range(MAX_SIZES + 3), 7, 1, 2 * MAX_SIZES, 7]:  # a rank may hold none of a batch
        observations, after = torch.randn((2, size, 4), generator=random)
        batch = Transitions(observations, after, torch.arange(size) % 3, torch.ones(size), torch.ones(size))
        network.gradient.zero_()
        expected = by_autograd(network, dqn.loss(network.leaves, network.views(target), batch, parameters.discount))
        with torch.inference_mode():
            gradients.compute(batch, COUNT)
        assert torch.allclose(network.gradient, expected, atol=1e-5), f"with {size} samples"


@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    size=st.integers(1, 17),
    names=st.integers(1, 3),
    activation=st.sampled_from(["tanh", "relu"]),
)
def test_a_stack_of_any_shape_has_autograds_outputs_and_gradients_to_the_last_digits_of_double_precision(
    widths: list[int], size: int, names: int, activation: str
) -> None:
    perceptrons = [dense(f"p{i}", widths, 1.0, 0, i) for i in range(names)]
    network = shaken(Network(side_by_side(*perceptrons), CPU))
    for name in ("vector", "gradient"):
        setattr(network, name, getattr(network, name).double())
    leaves = {name: view.clone().requires_grad_() for name, view in network.views(network.vector).items()}
    inputs = torch.randn((size, widths[0]), dtype=torch.float64, requires_grad=True)
    pull = torch.randn((names, size, widths[-1]), dtype=torch.float64)
    expected = torch.stack([forward(leaves, f"p{i}", activation, inputs) for i in range(names)])
    expected.backward(pull)
    stack = Stack(network, [f"p{i}" for i in range(names)], activation, range(len(widths) - 1))
    with torch.inference_mode():
        outputs = stack.forward(inputs)
        stack.incoming(size).copy_(pull)
        by_inputs = pull.new_empty((names, size, widths[0]))
        stack.backward(size, into=by_inputs)
    close = {"atol": 1e-12, "rtol": 1e-10}
    assert torch.allclose(outputs, expected, **close)
    assert torch.allclose(by_inputs.sum(0), inputs.grad, **close)
    for name, view in network.views(network.gradient).items():
        assert torch.allclose(view, leaves[name].grad, **close), name
