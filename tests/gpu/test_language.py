"""Language models on a GPU: every algorithm learns there, in both precisions, and exports what it learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from learnloop_api.kinds.training.algorithms import LANGUAGE
from learnloop_api.wire.training import Proof
from learnloop_trainer.language.base_model import folder_digest
from testing.language.imitating_model import base
from testing.language.recorded_turns import preferences, turns
from testing.servers.ports import held_port

__all__ = ["base"]

Launch = Callable[..., Any]
ROUND = {"batchEpisodes": 128, "groupSize": 8, "learningRateSchedule": "constant"}
ROUNDS = 14
WHOLE = {"weights": "full", "learningRate": 5e-4}
NARROW = {"precision": "bfloat16"}
PLAYED = {
    "rloo": ("rloo", {**ROUND, "learningRate": 3e-3}),
    "rloo, bfloat16": ("rloo", {**ROUND, "learningRate": 3e-3, **NARROW}),
    "grpo, all weights": ("grpo", {**ROUND, **WHOLE}),
    "grpo, all weights, bfloat16": ("grpo", {**ROUND, **WHOLE, **NARROW}),
    "ppo-lm": ("ppo-lm", {**ROUND, "groupSize": 1, "learningRate": 1e-3}),
}
RECORDED = ("sft", "dpo", "bradley-terry")
LEAST_GAIN = 0.1
"""Of sampled success on held-out tasks after these rounds; on a processor they gain 0.2 and more."""


def ordered(base: Path, algorithm: str, block: dict, steps: int) -> dict:
    spoken = {
        "base": {"uri": base.as_uri(), "sha256": folder_digest(base)},
        "contextLength": 256,
        "sampling": {"temperature": 1, "maxTokens": 64},
    }
    spec = {
        "algorithm": algorithm,
        "hyperparameters": block,
        "totalSteps": steps,
        "seed": 1,
        "evaluation": {"episodes": 128},
        "data": {"environment": "ToolLookup-v1", "languageModel": spoken},
    }
    return {"job": "small-1", "spec": spec}


def finished(launch: Launch, order: dict, tmp_path: Path, device: str) -> Proof:
    code, output = launch(order).ended(500)
    assert code == 0, output
    assert f"thread(s), {device}, torch" in output
    return Proof.model_validate_json((tmp_path / "store/runs/small-1/proof.json").read_text())


def test_no_algorithm_is_left_out() -> None:
    assert {algorithm for algorithm, _ in PLAYED.values()} | set(RECORDED) == set(LANGUAGE)


@pytest.mark.parametrize("case", PLAYED)
def test_it_learns_by_playing_on_the_device_and_exports_what_it_learned(launch, base, tmp_path, device, case):
    algorithm, block = PLAYED[case]
    proof = finished(launch, ordered(base, algorithm, block, ROUNDS * 128), tmp_path, device)
    assert proof.parity.passed, proof.parity
    facts = proof.language
    assert facts.precision == block.get("precision", "float32")
    assert facts.success - facts.baseline_success >= LEAST_GAIN, facts


@pytest.mark.two_gpus
def test_trl_trains_shards_in_bfloat16_on_two_gpus_by_nccl(launch, base, tmp_path):
    order = ordered(base, "rloo", {**ROUND, "learningRate": 3e-3, **NARROW}, ROUNDS * 128)
    order["spec"] |= {"engine": "trl", "settings": {"fsdp": True}}
    with held_port() as port:
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ends = [rank.ended(500) for rank in [launch(order, RANK=str(rank), **shared) for rank in range(2)]]
    assert [code for code, _ in ends] == [0, 0], ends
    assert "2 ranks meet by cpu:gloo,cuda:nccl" in ends[0][1]
    proof = Proof.model_validate_json((tmp_path / "store/runs/small-1/proof.json").read_text())
    assert proof.language is not None
    assert proof.language.success - proof.language.baseline_success >= LEAST_GAIN, proof.language


@pytest.mark.parametrize("algorithm", RECORDED)
def test_it_learns_from_a_recording_on_the_device(launch, base, tmp_path, device, algorithm):
    words = AutoTokenizer.from_pretrained(base)
    made = turns(words, tmp_path, 16) if algorithm == "sft" else preferences(words, tmp_path, 40)
    pairs = {"batchPairs": 4}
    block = {"sft": {"batchEpisodes": 4}, "dpo": pairs}.get(algorithm, {**pairs, "heldOutShare": 0.5})
    proof = finished(launch, ordered(base, algorithm, {**block, "recording": made}, 32), tmp_path, device)
    assert proof.parity.passed, proof.parity
    assert (proof.reward_model if algorithm == "bradley-terry" else proof.language) is not None
