"""Two ranks that train a language model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.directory import DirectoryStore
from testing.language.tiny_model import model, tokeniser
from testing.servers.ports import held_port


def test_two_ranks_hold_their_validation_together(launch: Callable[..., Any], tmp_path: Path) -> None:
    folder, words = tmp_path / "base", tokeniser(ToolLookup(), seed=0)
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    rounds = {"batchEpisodes": 12, "groupSize": 1, "minibatches": 1, "learningRate": 0.001, "entropyCoefficient": 0.1}
    spoken = {"base": {"uri": folder.as_uri(), "sha256": folder_digest(folder)}, "sampling": {"maxTokens": 12}}
    spec = {
        "algorithm": "ppo-lm",
        "hyperparameters": rounds | {"weights": "full", "tokensPerBatch": 512},
        "totalSteps": 24,
        "seed": 1,
        "evaluation": {"episodes": 7, "whileTraining": {"everySteps": 12, "episodes": 5}},
        "export": {"policy": "best"},
        "data": {"environment": "ToolLookup-v1", "languageModel": spoken},
    }
    with held_port() as port:
        shared = {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{tmp_path / 'store'}"}
        ranks = [launch({"job": "lm-1", "spec": spec}, RANK=str(rank), **shared) for rank in range(2)]
        ends = [rank.ended() for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    manifest = DirectoryStore(tmp_path / "store", "lm-1").manifest()
    assert manifest is not None
    assert manifest.while_training is not None
    assert [point.step for point in manifest.while_training.points] == [0, 12, 24]
    assert (manifest.while_training.episodes, manifest.while_training.exported) == (5, "best")
    assert manifest.parity.passed
