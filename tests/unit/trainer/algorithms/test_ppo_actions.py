"""PPO with numbers for actions, with a choice next to them, and with normalised observations."""

from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_common.acting.onnx_policy import OnnxPolicy as Served
from learnloop_environments.spaces import Bounds
from learnloop_trainer.algorithms import action_heads, ppo
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export import OnnxPolicy, build, check
from learnloop_trainer.export.exported_policy import trained
from learnloop_trainer.neural.observation_normalisation import Normaliser, normalised
from testing.training.interrupted_runs import goes_on_exactly

CPU = torch.device("cpu")
SMALL = {"environments": 4, "horizon": 8, "epochs": 2, "minibatches": 2, "hidden": [8], "normaliseObservations": True}
LOW, HIGH = np.float32([0, -2, 0.1]), np.float32([3, 0.7, 0.3])


def test_mean_and_deviation_are_those_of_everything_seen() -> None:
    random, normaliser = np.random.default_rng(0), Normaliser(3)
    observations = random.normal(50.0, 4.0, (7, 100, 3)).astype(np.float32)
    for rows in observations:
        normaliser.see(rows)
        normaliser.absorb(Alone())
    result = normaliser.apply(observations.reshape(-1, 3))
    assert np.abs(result.mean(axis=0)).max() < 0.2, "the first of 701 rows is the zero it began with"
    assert np.abs(result.std(axis=0) - 1).max() < 0.2
    assert np.abs(normaliser.apply(np.full((1, 3), 1e9, dtype=np.float32))).max() == 10.0


def test_what_is_seen_in_a_rollout_does_not_change_how_it_is_seen() -> None:
    normaliser, rows = Normaliser(2), np.ones((4, 2), dtype=np.float32)
    first = normaliser.see(rows)
    assert np.array_equal(normaliser.see(rows), first)
    normaliser.absorb(Alone())
    assert not np.array_equal(normaliser.apply(rows), first)


@pytest.mark.parametrize("choices", [0, 4])
def test_the_graph_normalises_chooses_squashes_and_scales_as_training_does(choices: int) -> None:
    bounds = Bounds(LOW, HIGH, 4) if choices else Bounds(LOW[1:], HIGH[1:])
    head: action_heads.Head = action_heads.Hybrid(bounds) if choices else action_heads.Gaussian(bounds)
    network = ppo.init(hyperparameters("ppo", hidden=[8]), 3, head, 0, CPU)
    network.vector.add_(torch.randn(network.vector.shape, generator=torch.Generator().manual_seed(0)))
    observations = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32) * np.float32(30)
    normaliser = Normaliser(3)
    normaliser.see(observations)
    normaliser.absorb(Alone())
    network.fixed = normaliser.arrays()
    body = build(network.arrays() | network.fixed, "policy", "tanh", {}, bounds)
    policy = OnnxPolicy(body, 3, len(bounds.low), continuous=True)
    parity = check(trained(network, "ppo", bounds), policy, observations, 0)
    assert parity.passed
    assert parity.action_agreement == 1
    action = policy.act(observations)
    assert ((action >= bounds.low) & (action <= bounds.high)).all()
    inputs = normalised(network.fixed, observations)
    outputs = ppo.forward_numpy(network.arrays(), "policy", "tanh", inputs)
    zero = np.zeros((len(inputs), outputs.shape[1]), dtype=np.float32)
    calm = head.executed(head.draw(network.arrays(), outputs, zero))
    assert np.allclose(calm, action, atol=1e-5), "without noise, training does what the graph does"
    if choices:
        assert set(action[:, 0]) == {0, 1, 2, 3}
    network.vector.add_(0.01)
    assert not check(trained(network, "ppo", bounds), policy, observations, 0).passed


def test_the_policy_server_serves_a_hybrid_policy(tmp_path: Path) -> None:
    bounds = Bounds(LOW, HIGH, 4)
    network = ppo.init(hyperparameters("ppo", hidden=[8]), 3, action_heads.Hybrid(bounds), 0, CPU)
    (tmp_path / "policy.onnx").write_bytes(build(network.arrays(), "policy", "tanh", {}, bounds))
    served, observations = Served(tmp_path / "policy.onnx"), np.ones((5, 3), dtype=np.float32)
    assert (served.continuous, served.actions) == (True, 3)
    assert np.allclose(served.run(observations)["action"], trained(network, "ppo", bounds)(observations))


def test_a_uniform_hybrid_action_takes_each_choice_as_often() -> None:
    draws = np.linspace(-1, 1, 4001, dtype=np.float32)
    actions = Bounds(LOW, HIGH, 4).scale(np.stack((draws, draws, draws), axis=1))
    chosen, counts = np.unique(actions[:, 0], return_counts=True)
    assert chosen.tolist() == [0, 1, 2, 3]
    assert counts.max() - counts.min() <= 1
    assert actions[[0, -1], 1:] == pytest.approx(np.stack((LOW[1:], HIGH[1:])), abs=1e-6)


def test_an_interrupted_run_with_a_normaliser_ends_with_the_same_state_to_the_last_bit(make_order):
    order = make_order("ppo", steps=4000, hyperparameters=SMALL, data={"environment": "Pendulum-v1"})
    assert goes_on_exactly(order, 2, 2).learner.shared()["normaliser.count"] == 4 * 4 * 8 + 1
