"""Two ranks that train a language model: together, or the same one as a rank alone, up to rounding."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.run_store import DirectoryStore, part, unpack
from testing.language.recorded_turns import preferences, turns
from testing.language.tiny_model import model, tokeniser
from testing.servers.ports import held_port

TOLERANCE = 1e-4


def ended(changes: dict, launch: Callable, tmp_path: Path, size: int = 2) -> tuple:
    """The proof of these ranks, and the weights of their checkpoint."""
    folder, words = tmp_path / "base", tokeniser(ToolLookup(), seed=0)
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    spoken = {"base": {"uri": folder.as_uri(), "sha256": folder_digest(folder)}, "sampling": {"maxTokens": 12}}
    spec = {
        "totalSteps": 24,
        "seed": 1,
        "evaluation": {"episodes": 7},
        "data": {"environment": "ToolLookup-v1", "languageModel": spoken},
        **changes,
    }
    store = tmp_path / f"store-{size}"
    with held_port() as port:
        shared = {"WORLD_SIZE": str(size), "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{store}"}
        ranks = [launch({"job": "lm-1", "spec": spec}, RANK=str(rank), **shared) for rank in range(size)]
        ends = [rank.ended() for rank in ranks]
    assert [code for code, _ in ends] == [0] * size, ends
    store_ = DirectoryStore(store, "lm-1")
    proof, saved = store_.proof(), store_.checkpoint()
    assert proof.parity.passed
    return proof, part(unpack(saved.body)[0], "shared")["vector"]


def test_two_ranks_hold_their_validation_together(launch: Callable, tmp_path: Path) -> None:
    rounds = {"batchEpisodes": 12, "groupSize": 1, "minibatches": 1, "learningRate": 0.001, "entropyCoefficient": 0.1}
    changes = {
        "algorithm": "ppo-lm",
        "hyperparameters": rounds | {"weights": "full", "tokensPerBatch": 512},
        "evaluation": {"episodes": 7, "whileTraining": {"everySteps": 12, "episodes": 5}},
        "export": {"policy": "best"},
    }
    proof, _ = ended(changes, launch, tmp_path)
    assert [point.step for point in proof.while_training.points] == [0, 12, 24]
    assert (proof.while_training.episodes, proof.while_training.exported) == (5, "best")


@pytest.mark.parametrize(("algorithm", "settings"), [("grpo", {}), ("rloo", {"fsdp": True})])
def test_trl_holds_its_conversations_on_two_ranks(algorithm, settings, launch, tmp_path):
    rounds = {"batchEpisodes": 12, "groupSize": 3, "learningRate": 0.001}
    changes = {"algorithm": algorithm, "engine": "trl", "hyperparameters": rounds, "settings": settings}
    proof, _ = ended(changes, launch, tmp_path)
    assert (proof.engine, proof.world_size, proof.step) == ("trl", 2, 24)


FSDP = "trl, fsdp"


@pytest.mark.parametrize(
    ("engine", "algorithm", "block"),
    [
        ("own", "bradley-terry", {"batchPairs": 8, "heldOutShare": 0.3}),
        ("trl", "bradley-terry", {"batchPairs": 8, "heldOutShare": 0.3}),
        (FSDP, "bradley-terry", {"batchPairs": 8, "heldOutShare": 0.3, "weights": "full"}),
        ("trl", "dpo", {"batchPairs": 8, "nllCoefficient": 0}),
        (FSDP, "dpo", {"batchPairs": 8, "nllCoefficient": 0}),
        ("trl", "sft", {"batchEpisodes": 8}),
        (FSDP, "sft", {"batchEpisodes": 8, "weights": "full"}),
    ],
)
def test_two_ranks_learn_what_one_learns(engine, algorithm, block, launch, tmp_path):
    recording = (turns if algorithm == "sft" else preferences)(tokeniser(ToolLookup(), seed=0), tmp_path, 40)
    block = block | {"recording": recording, "learningRate": 0.005}
    changes = {"algorithm": algorithm, "engine": engine[:3], "hyperparameters": block, "totalSteps": 80}
    alone, one = ended(changes, launch, tmp_path, 1)
    together, two = ended(changes | ({"settings": {"fsdp": True}} if engine == FSDP else {}), launch, tmp_path, 2)
    difference = float(np.abs(one.astype(np.float64) - two).max())
    print(f"largest difference of a weight: {difference:.2e}")
    assert difference < TOLERANCE
    if alone.reward_model is not None and together.reward_model is not None:
        assert alone.reward_model.held_out_sha256 == together.reward_model.held_out_sha256
        assert (alone.reward_model.pairs, alone.reward_model.held_out_pairs) == (28, 12)
