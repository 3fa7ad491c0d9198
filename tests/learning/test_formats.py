"""A whole run that exports TorchScript too: it is stored, and is as faithful as the ONNX graph."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

PPO = {"environments": 8, "horizon": 32, "hidden": [16], "normaliseObservations": True}


def test_a_runs_torchscript_passes_parity_and_loads_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    spec = {"algorithm": "ppo", "totalSteps": 2000, "ppo": PPO, "data": {"environment": "Pendulum-v1"}}
    spec |= {"export": {"formats": ["torchscript"]}, "evaluation": {"episodes": 10}}
    order = Order.model_validate({"job": "formats-1", "spec": spec})
    run(order, Place(), 1)
    store = DirectoryStore(tmp_path, order.job)
    proof = store.proof()
    assert [item.format for item in proof.exports] == ["torchscript"]
    assert all(item.parity.passed and item.parity.observations >= 10_000 for item in proof.exports)
    script = torch.jit.load(io.BytesIO(store.artifact(f"learnloop://default/{proof.exports[0].sha256}")))
    observations = np.zeros((5, 3), dtype=np.float32)
    greedy = OnnxPolicy(store.artifact(f"learnloop://default/{proof.artifact_sha256}"), 3, 1, continuous=True).act(
        observations
    )
    assert np.allclose(script(torch.from_numpy(observations)).numpy(), greedy, atol=1e-5)
