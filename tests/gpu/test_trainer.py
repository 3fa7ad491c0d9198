"""The trainer as it runs on a GPU node: real ranks as processes, told nothing but their order."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnloop_api.kinds.training.algorithms import LANGUAGE, OWN
from learnloop_api.wire.training import Proof
from learnloop_trainer.store.run_store import DirectoryStore, part, unpack
from testing.servers.ports import held_port
from testing.training.recordings import recorded

Launch = Callable[..., Any]
Small = Callable[..., dict[str, Any]]
STEPS = 64 * 400

# Algorithm → environment, hyperparameters, steps, and a return that is out of reach without having learned.
PLAYED = {
    "ppo": ("CartPole-v1", {}, 100_000, 300),
    "dqn": ("CartPole-v1", {"hidden": [64, 64]}, 40_000, 120),
    "sac": (
        "Pendulum-v1",
        {"environments": 4, "stepsPerUpdate": 4, "batchSize": 64, "hidden": [32, 32], "learningStarts": 400}
        | {"learningRate": 5e-3, "targetRate": 0.02},
        8000,
        -500,
    ),
    "independent-dqn": (
        "teams:TwoStep",
        {"environments": 32, "learningStarts": 500, "stepsPerUpdate": 32, "bufferSize": 5000, "hidden": [32]}
        | {"learningRate": 2e-3, "targetUpdate": 50},
        10_000,
        6.5,
    ),
    "qmix": ("teams:TwoStep", {}, 20_000, 6.5),
    "hierarchical-dqn": ("grids:KeyDoor", {}, 4000, -1e9),
    "maddpg": ("teams:Relay", {}, 2000, -1e9),
    "maml": ("motion:PointGoals", {}, 4000, -1e9),
}
"""Those whose bar is low show that their code runs on the device; tests/learning compares what they learn."""
GOALS = [{"parameter": f"goal_{axis}", "low": -0.5, "high": 0.5} for axis in "xy"]
"""A family of tasks, which maml learns to learn."""
LOGGED = ("bc", "cql", "iql-offline")


def order_of(small: Small, algorithm: str, environment: str, steps: int, parameters, **data) -> dict:
    job = small("ppo", steps, data={"environment": environment, **data}, evaluation={"episodes": 30})
    del job["spec"]["hyperparameters"]
    job["spec"] |= {"algorithm": algorithm, "hyperparameters": parameters or {}}
    return job


def finished(store: Path) -> Proof:
    return Proof.model_validate_json((store / "runs/small-1/proof.json").read_text())


def weights(store: Path) -> dict:
    saved = DirectoryStore(store, "small-1").checkpoint()
    return part(unpack(saved.body)[0], "shared")


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as one:
        yield one


def test_no_algorithm_is_left_out() -> None:
    assert set(PLAYED) | set(LOGGED) == set(OWN) - set(LANGUAGE), "language models: tests/learning on a GPU"


@pytest.mark.parametrize("algorithm", PLAYED)
def test_it_learns_on_the_device_and_what_it_exports_acts_like_its_network(launch, small, tmp_path, device, algorithm):
    environment, parameters, steps, least = PLAYED[algorithm]
    drawn = {"randomise": GOALS} if algorithm == "maml" else {}
    rank = launch(order_of(small, algorithm, environment, steps, parameters, **drawn))
    code, output = rank.ended(500)
    assert code == 0, output
    assert f"thread(s), {device}, torch" in output
    proof = finished(tmp_path / "store")
    assert proof.parity.passed, proof.parity
    assert proof.evaluation.mean > least, proof.evaluation


@pytest.mark.parametrize("algorithm", LOGGED)
def test_one_that_learns_from_a_log_does_so_on_the_device(launch, small, tmp_path, device, algorithm):
    (tmp_path / "store" / "trajectories").mkdir(parents=True)
    recorded("CartPole-v1", tmp_path / "store" / "trajectories" / "la.jsonl")
    logged = {"learningAgentRef": {"name": "la"}}
    code, output = launch(order_of(small, algorithm, "CartPole-v1", 4096, None, **logged)).ended(500)
    assert code == 0, output
    assert f"thread(s), {device}, torch" in output
    assert finished(tmp_path / "store").parity.passed


def test_a_killed_run_goes_on_from_its_checkpoint_and_ends_with_the_weights_of_one_undisturbed(launch, small, tmp_path):
    order = small(steps=STEPS)
    calm, rough = f"file://{tmp_path}/calm", f"file://{tmp_path}/rough"
    peaceful = launch(order, LEARNLOOP_STORE=calm)
    killed = launch(order, LEARNLOOP_STORE=rough)
    saved = tmp_path / "rough" / "runs" / "small-1"
    killed.wait_until(lambda: DirectoryStore(tmp_path / "rough", "small-1").checkpoint() is not None)
    killed.process.kill()
    assert saved.exists()
    again = launch(order, LEARNLOOP_STORE=rough)
    ends = [peaceful.ended(), again.ended()]
    assert [code for code, _ in ends] == [0, 0], ends
    assert "resuming at step" in ends[1][1]
    whole, resumed = weights(tmp_path / "calm"), weights(tmp_path / "rough")
    assert all(np.array_equal(whole[name], resumed[name]) for name in whole if name.startswith("policy."))


def _two(launch: Launch, order, port: int, **environ: str) -> list[tuple[int | None, str]]:
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environ}
    both = [launch(order, RANK=str(rank), **shared) for rank in range(2)]
    return [rank.ended(400) for rank in both]


def test_two_ranks_share_one_gpu_by_gloo(launch: Launch, small: Small, tmp_path: Path, port: int, device: str) -> None:
    ends = _two(launch, small(steps=STEPS), port, CUDA_VISIBLE_DEVICES="0")
    assert [code for code, _ in ends] == [0, 0], ends
    assert f"2 ranks meet by {'gloo' if device == 'cpu' else 'cpu:gloo,cuda:gloo'}" in ends[0][1]
    proof = finished(tmp_path / "store")
    assert (proof.world_size, proof.step, proof.parity.passed) == (2, STEPS, True)


@pytest.mark.two_gpus
def test_two_ranks_with_a_gpu_each_meet_by_nccl(launch: Launch, small: Small, tmp_path: Path, port: int) -> None:
    ends = _two(launch, small(steps=STEPS), port)
    assert [code for code, _ in ends] == [0, 0], ends
    assert "2 ranks meet by cpu:gloo,cuda:nccl" in ends[0][1]
    assert finished(tmp_path / "store").parity.passed
