"""Two ranks over gloo on loopback: one is killed, one told to stop, and the weights do not show it."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learnloop_api.wire.training import Heartbeat, Proof
from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import DirectoryStore, part, unpack
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_training import begin
from testing.servers.ports import held_port
from testing.training.recordings import recorded

STEPS = 64 * 800  # a few seconds
Launch = Callable[..., Any]


def ranks(launch: Launch, order: object, store: Path, port: int) -> list[Callable]:
    """How to start each of two ranks."""
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_PORT": str(port),
        "MASTER_ADDR": "127.0.0.1",
        "LEARNLOOP_STORE": f"file://{store}",
    }
    return [lambda rank=rank: launch(order, RANK=str(rank), **shared) for rank in range(2)]


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """The port of each group's rank 0, which comes back to it after each loss."""
    with held_port() as one, held_port() as other:
        yield one, other


def weights(store: Path) -> dict[str, np.ndarray]:
    saved = DirectoryStore(store, "small-1").checkpoint()
    shared = part(unpack(saved.body)[0], "shared")
    return {name: array for name, array in shared.items() if name.startswith("policy.")}


def test_two_ranks_end_with_the_weights_of_one_and_lost_workers_change_nothing(launch, small, tmp_path, ports):
    order = small(steps=STEPS)
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    peaceful = [start() for start in ranks(launch, order, calm, ports[0])]
    starters = ranks(launch, order, rough, ports[1])
    master, killed = (start() for start in starters)
    killed.wait_for("training")
    killed.process.kill()
    terminated = starters[1]()
    terminated.wait_for("training")
    os.kill(terminated.process.pid, signal.SIGTERM)
    assert terminated.ended()[0] == 143
    last = starters[1]()
    results = [rank.ended() for rank in (*peaceful, master, last)]
    assert [code for code, _ in results] == [0, 0, 0, 0], results
    assert results[2][1].count("a peer was lost") >= 2
    assert "resuming at step" in results[3][1]
    together, disturbed = weights(calm), weights(rough)
    assert all(np.array_equal(together[name], disturbed[name]) for name in together)

    parsed = Order.model_validate(order)
    alone = begin(parsed, Alone(), torch.device("cpu"))
    while alone.learner.step < STEPS:
        alone.observation, _ = alone.learner.iterate(alone.observation)
    for name, array in alone.learner.network.arrays().items():
        if name in together:
            assert np.allclose(array, together[name], atol=2e-2), name

    proof = Proof.model_validate_json((rough / "runs/small-1/proof.json").read_text())
    assert (proof.world_size, proof.step, proof.parity.passed) == (2, STEPS, True)
    beat = Heartbeat.model_validate_json((rough / "runs/small-1/heartbeat.json").read_text())
    assert (beat.phase, beat.step) == ("done", STEPS)


def test_two_ranks_share_a_batch_of_played_and_logged_transitions(launch, small, tmp_path, ports):
    store = tmp_path / "store"
    (store / "trajectories").mkdir(parents=True)
    recorded("CartPole-v1", store / "trajectories" / "la.jsonl")
    data = {"environment": "CartPole-v1", "learningAgentRef": {"name": "la"}}
    order = small("dqn", 2048, data=data)
    both = [start() for start in ranks(launch, order, store, ports[0])]
    results = [rank.ended() for rank in both]
    assert [code for code, _ in results] == [0, 0], results
    assert "mixes its own steps with 300 that la logged in 1 episodes" in results[0][1]
    saved = DirectoryStore(store, "small-1").checkpoint()
    together = part(unpack(saved.body)[0], "shared")
    alone = begin(Order.model_validate(order), Alone(), torch.device("cpu"), DirectoryStore(store, "another"))
    while alone.learner.step < 2048:
        alone.observation, _ = alone.learner.iterate(alone.observation)
    for name, array in alone.learner.network.arrays().items():
        assert np.allclose(array, together[name], atol=2e-2), name
    proof = Proof.model_validate_json((store / "runs/small-1/proof.json").read_text())
    assert (proof.experience.agent, proof.experience.episodes) == ("la", 1)
    assert proof.experience.trajectory_ids == ["t"]


@pytest.mark.parametrize("algorithm", ["cql", "iql-offline"])
def test_two_ranks_that_share_a_log_end_with_the_weights_of_one(launch, small, tmp_path, ports, algorithm):
    store = tmp_path / "store"
    (store / "trajectories").mkdir(parents=True)
    recorded("CartPole-v1", store / "trajectories" / "la.jsonl")
    data = {"environment": "CartPole-v1", "learningAgentRef": {"name": "la"}}
    order = small("dqn", 4096, data=data)
    del order["spec"]["hyperparameters"]
    order["spec"] |= {"algorithm": algorithm, "hyperparameters": {"hidden": [16], "batchSize": 32, "environments": 2}}
    both = [start() for start in ranks(launch, order, store, ports[0])]
    results = [rank.ended() for rank in both]
    assert [code for code, _ in results] == [0, 0], results
    saved = DirectoryStore(store, "small-1").checkpoint()
    together = part(unpack(saved.body)[0], "shared")
    alone = begin(Order.model_validate(order), Alone(), torch.device("cpu"), DirectoryStore(store, "another"))
    while alone.learner.step < 4096:
        alone.observation, _ = alone.learner.iterate(alone.observation)
    for name, array in alone.learner.network.arrays().items():
        assert np.allclose(array, together[name], atol=2e-2), name
