"""A whole run that exports every format: each is stored, and is as faithful as the ONNX graph."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

PPO = {"environments": 8, "horizon": 32, "hidden": [16], "normaliseObservations": True}


def test_a_runs_pt2_and_torchscript_pass_parity_and_load_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    spec = {"algorithm": "ppo", "totalSteps": 2000, "ppo": PPO, "data": {"environment": "Pendulum-v1"}}
    spec |= {"export": {"formats": ["pt2", "torchscript"]}, "evaluation": {"episodes": 10}}
    order = Order.model_validate({"job": "formats-1", "spec": spec})
    run(order, Place(), 1)
    store = DirectoryStore(tmp_path, order.job)
    manifest = store.manifest()
    assert manifest is not None
    assert [item.format for item in manifest.exports] == ["pt2", "torchscript"]
    assert all(item.parity.passed and item.parity.observations >= 10_000 for item in manifest.exports)
    pt2, script = (io.BytesIO(store.artifact(f"learnloop://default/{item.sha256}")) for item in manifest.exports)
    seen = torch.zeros((5, 3))
    one, other = torch.export.load(pt2).module()(seen), torch.jit.load(script)(seen)
    assert np.array_equal(one.detach().numpy(), other.numpy())
