"""Language models of 118,000 parameters, made from nothing, learn to use tools. One model is made for all of them."""

from pathlib import Path

import pytest
import torch

from bench.language.tiny_runs import Case, TinyRun
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.from_scratch import make


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that imitates demonstrations of which two thirds err."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("base")
    make(directory, ToolLookup(), updates=300)
    return directory


@pytest.mark.parametrize(
    ("algorithm", "weights", "rate", "rounds"),
    [
        ("rloo", "lora", 3e-3, 14),
        ("grpo", "lora", 2e-3, 14),
        ("rloo", "full", 7e-4, 14),
    ],
)
def test_a_policy_gradient_teaches_the_use_of_tools(
    base: Path, algorithm: str, weights: str, rate: float, rounds: int
) -> None:
    found = TinyRun(base, Case(algorithm, weights, rounds, {"learning_rate": rate}), seed=0).learned()
    assert found.gain >= 0.2
    assert found.greedy_gain >= -0.05
