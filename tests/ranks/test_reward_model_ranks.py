"""A reward model on two ranks: the same pairs in the same order, and the same weights up to rounding."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from learnloop_api.wire.language import Preference
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.store.run_store import part, unpack
from testing.language.tiny_model import model, tokeniser
from testing.servers.ports import held_port

TOLERANCE = 1e-4


def order(tmp_path: Path) -> dict[str, Any]:
    words, base = tokeniser(ToolLookup(), seed=0), tmp_path / "base"
    model(len(words), 3, words.eos_token_id).save_pretrained(base)
    words.save_pretrained(base)
    lines = [
        Preference.model_validate(
            {
                "preference_id": f"p{number}",
                "agent": "speaker",
                "messages": [{"role": "user", "content": f"key {number}"}],
                "chosen": {"text": f"look {number}"},
                "rejected": {"text": f"box {number} {number}"},
                "at": datetime(2026, 11, 1, tzinfo=UTC),
            }
        ).model_dump_json()
        for number in range(40)
    ]
    (tmp_path / "preferences.jsonl").write_text("\n".join(lines))
    recording = (tmp_path / "preferences.jsonl").as_uri()
    spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}}
    spec = {
        "algorithm": "bradley-terry",
        "hyperparameters": {"batchPairs": 8, "heldOutShare": 0.3, "recording": recording, "learningRate": 0.005},
        "totalSteps": 80,
        "data": {"environment": "ToolLookup-v1", "languageModel": spoken},
    }
    return {"job": "rm-1", "spec": spec}


def test_two_ranks_learn_the_reward_model_of_one(launch: Callable[..., Any], tmp_path: Path) -> None:
    document = order(tmp_path)
    found = []
    for size in (1, 2):
        store = tmp_path / f"store-{size}"
        with held_port() as port:
            shared = {"WORLD_SIZE": str(size), "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{store}"}
            ranks = [launch(document, RANK=str(rank), **shared) for rank in range(size)]
            ends = [rank.ended() for rank in ranks]
        assert [code for code, _ in ends] == [0] * size, ends
        kept = DirectoryStore(store, "rm-1")
        saved, manifest = kept.checkpoint(), kept.manifest()
        assert saved is not None
        assert manifest is not None
        assert manifest.reward_model is not None
        found.append((part(unpack(saved.body)[0], "shared")["vector"], manifest.reward_model))
    (one, proof), (other, again) = found
    difference = float(np.abs(one.astype(np.float64) - other).max())
    print(f"largest difference of a weight: {difference:.2e}; accuracy {json.dumps(proof.accuracy)}")
    assert difference < TOLERANCE
    assert proof.held_out_sha256 == again.held_out_sha256
    assert (proof.pairs, proof.held_out_pairs) == (28, 12)
