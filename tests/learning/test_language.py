"""Language models of 118,000 parameters, made from nothing, learn to use tools. One model is made for all of them."""

from pathlib import Path

import pytest

from bench.language.tiny_runs import Case, TinyRun
from learnloop_trainer.engines.engine_run import run
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Place
from testing.language.imitating_model import base

__all__ = ["base"]


@pytest.mark.parametrize(
    ("algorithm", "weights", "rate", "rounds"), [("grpo", "lora", 2e-3, 14), ("rloo", "full", 7e-4, 14)]
)
def test_a_policy_gradient_teaches_the_use_of_tools(base, algorithm, weights, rate, rounds):
    result = TinyRun(base, Case(algorithm, weights, rounds, {"learning_rate": rate}), seed=0).learned()
    assert result.gain >= 0.2
    # By one seed: processors of another kind make another base model. make bench-language asks more of five seeds.
    assert result.greedy[1] > result.sampled[1], "the likeliest answers are still better than sampled ones"


def test_trl_teaches_it_too(base: Path, make_order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}, "sampling": {"maxTokens": 64}}
    data = {"environment": "ToolLookup-v1", "languageModel": spoken}
    more = {"engine": "trl", "hyperparameters": {"learningRate": 2e-3}, "evaluation": {"episodes": 128}}
    run(make_order("grpo", 14 * 128, data=data, **more), Place(), 1)
    proof = DirectoryStore(tmp_path, "small-1").proof()
    assert proof.difference.low > 0
