"""Language models of 118,000 parameters, made from nothing, learn to use tools. One model is made for all of them."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.language.tiny_runs import Case, TinyRun
from learnloop_trainer.engines.engine_run import run
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Place
from testing.language.imitating_model import base
from testing.language.served_weights import served_mean

__all__ = ["base"]


@pytest.mark.parametrize(
    ("algorithm", "weights", "rate", "rounds"), [("grpo", "lora", 2e-3, 14), ("rloo", "full", 7e-4, 14)]
)
def test_a_policy_gradient_teaches_the_use_of_tools(base, algorithm, weights, rate, rounds):
    result = TinyRun(base, Case(algorithm, weights, rounds, {"learning_rate": rate}), seed=0).learned()
    assert result.gain >= 0.2
    # By one seed: processors of another kind make another base model. make bench-language asks more of five seeds.
    assert result.greedy[1] > result.sampled[1], "the likeliest answers are still better than sampled ones"


IMAGE = """
import json, os, shutil
from pathlib import Path

folder = Path(os.environ["LEARNLOOP_ENGINE_DIRECTORY"])
order = json.loads((folder / "order.json").read_text())
(folder / "result.json.new").write_text(json.dumps({"step": order["total_steps"]}))
(folder / "checkpoint.new").write_text("1")
(folder / "heartbeat.json.new").write_text('{"step": 1}')
for name, path in FILES.items():
    shutil.copyfile(path, folder / f"{name}.new")
for name in ("checkpoint", "heartbeat.json", *FILES, "result.json"):
    (folder / f"{name}.new").rename(folder / name)
"""
"""A program that hands in an adapter of its own."""


def test_trl_teaches_it_too_and_what_it_and_an_image_hand_in_is_served_as_it_is_proven(
    base: Path, make_order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}, "sampling": {"maxTokens": 64}}
    data = {"environment": "ToolLookup-v1", "languageModel": spoken}
    more = {"engine": "trl", "hyperparameters": {"learningRate": 2e-3}, "evaluation": {"episodes": 128}}
    by_trl = make_order("grpo", 14 * 128, data=data, **more)
    run(by_trl, Place(), 1)
    proof = DirectoryStore(tmp_path, "small-1").proof()
    assert proof.difference.low > 0
    files = {"adapter_model.safetensors": urlsplit(proof.artifact_uri).path}
    files["adapter_config.json"] = urlsplit(proof.exports[0].uri).path
    (tmp_path / "train.py").write_text(f"FILES = {files}\n{IMAGE}")
    own = {"pod": {"image": "own", "command": ["own"]}, "hyperparameters": {}, "evaluation": {"episodes": 64}}
    by_image = make_order("custom", 128, data=data, **own).model_copy(update={"job": "own-1"})
    run(by_image, Place(), 1, [sys.executable, str(tmp_path / "train.py")])
    for order in (by_trl, by_image):
        proven = DirectoryStore(tmp_path, order.job).proof()
        served = served_mean(order, proven, base, tmp_path / f"{order.job}-served")
        assert served == pytest.approx(proven.greedy.mean, rel=0.05)
        assert served > proof.baseline.mean
