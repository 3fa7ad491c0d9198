"""Language models whose weights are divided among two ranks: what they learn, hold, save and export."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from learnloop_api.wire.language import Preference
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.export.language import read
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.language.from_scratch import model, tokeniser
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.store.run_store import part, unpack
from testing.servers.ports import held_port
from testing.training.divided_ranks import parameter_bytes, resumed

TOLERANCE = 1e-4
LORA = {"lora": {"rank": 2, "layers": ["q_proj", "v_proj"]}}
ROUNDS = {"batchEpisodes": 12, "groupSize": 4, "learningRate": 0.001, "entropyCoefficient": 0.1}
WHOLE = {"weights": "full", "tokensPerBatch": 512}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "an adapter by rloo": ("rloo", ROUNDS | LORA),
    "all weights and a value head by ppo": ("ppo-lm", ROUNDS | WHOLE | {"groupSize": 1, "minibatches": 1}),
    "all weights by dpo": ("dpo", WHOLE | {"batchPairs": 5, "tokensPerBatch": 128, "learningRate": 0.001}),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights as a folder."""
    folder, words = tmp_path_factory.mktemp("base"), tokeniser(ToolLookup(), seed=0)
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def order(base: Path, folder: Path, algorithm: str, parameters: dict[str, Any], sharding: str) -> dict[str, Any]:
    """A small run; pairs of answers lie in the folder."""
    lines = [
        Preference.model_validate(
            {
                "preference_id": f"p{number}",
                "agent": "speaker",
                "messages": [{"role": "user", "content": f"key {number}"}],
                "chosen": {"text": f"look {number} " * (1 + number % 4)},
                "rejected": {"text": f"box {number}"},
                "at": datetime(2026, 11, 1, tzinfo=UTC),
            }
        ).model_dump_json()
        for number in range(12)
    ]
    (folder / "preferences.jsonl").write_text("\n".join(lines))
    given = copy.deepcopy(parameters) | {"sharding": sharding}
    if algorithm == "dpo":
        given["recording"] = (folder / "preferences.jsonl").as_uri()
    spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}, "sampling": {"maxTokens": 12}}
    spec = {
        "algorithm": algorithm,
        "hyperparameters": given,
        "totalSteps": 15 if algorithm == "dpo" else 24,
        "seed": 1,
        "evaluation": {"episodes": 7, "validationEpisodes": 3},
        "data": {"environment": "ToolLookup-v1", "languageModel": spoken},
    }
    return {"job": "lm-1", "spec": spec}


def trained(launch: Callable[..., Any], document: dict[str, Any], store: Path) -> tuple[Any, Any, bytes]:
    """Checkpoint, manifest and file of a run of two ranks."""
    with held_port() as port:
        shared = {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{store}"}
        ranks = [launch(document, RANK=str(rank), **shared) for rank in range(2)]
        ends = [rank.ended() for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    kept = DirectoryStore(store, "lm-1")
    saved, manifest = kept.checkpoint(), kept.manifest()
    assert saved is not None
    assert manifest is not None
    return (
        part(unpack(saved.body)[0], "shared"),
        manifest,
        Path(urlsplit(manifest.artifact_uri).path).read_bytes(),
    )


@pytest.mark.parametrize("case", sorted(CASES))
def test_ranks_that_divide_the_weights_learn_what_ranks_that_have_all_learn(
    case: str, launch: Callable[..., Any], base: Path, tmp_path: Path
) -> None:
    algorithm, parameters = CASES[case]
    found = [
        trained(launch, order(base, tmp_path, algorithm, parameters, sharding), tmp_path / sharding)
        for sharding in ("none", "full")
    ]
    (whole, manifest, body), (divided, other, again) = found
    for name in ("vector", "first", "second"):
        gap = float(np.abs(whole[name].astype(np.float64) - divided[name]).max())
        print(f"{case}: {name} differs by {gap:.2e}")
        assert gap < TOLERANCE, name
    assert float(np.abs(whole["first"]).max()) > 0, "something was learned"
    one, two = read(body).arrays, read(again).arrays
    assert set(one) == set(two)
    assert max(float(np.abs(np.asarray(one[name]) - np.asarray(two[name])).max()) for name in one) < TOLERANCE
    assert other.parity.passed
    assert other.parity.max_abs_difference < TOLERANCE
    assert (other.evaluation.episodes, other.validation.episodes) == (7, 3)
    assert other.evaluation.mean == pytest.approx(manifest.evaluation.mean, abs=TOLERANCE)
    assert other.baseline.mean == pytest.approx(manifest.baseline.mean, abs=TOLERANCE)
    assert other.language.mean_tokens == pytest.approx(manifest.language.mean_tokens, abs=TOLERANCE)
    for name, value in manifest.language.curves.items():
        if name != "tokens_per_second":
            assert other.language.curves[name] == pytest.approx(value, abs=1e-3), name


def test_two_ranks_with_all_weights_hold_their_validation_together(
    launch: Callable[..., Any], base: Path, tmp_path: Path
) -> None:
    document = order(base, tmp_path, *CASES["all weights and a value head by ppo"], "none")
    asked = {"everySteps": 12, "episodes": 5}
    document["spec"] |= {"evaluation": {"episodes": 7, "whileTraining": asked}, "export": {"policy": "best"}}
    _, manifest, _ = trained(launch, document, tmp_path / "judged")
    assert [point.step for point in manifest.while_training.points] == [0, 12, 24]
    assert (manifest.while_training.episodes, manifest.while_training.exported) == (5, "best")
    assert manifest.parity.passed


def test_ranks_that_divide_the_weights_go_on_bit_for_bit(base: Path, tmp_path: Path) -> None:
    document = order(base, tmp_path, *CASES["all weights and a value head by ppo"], "full")
    with held_port() as port:
        said = resumed(document, tmp_path, port)
    assert said[0] == said[1]
    assert said[0]["again"] == said[0]["whole"]
    assert said[0]["note"].startswith("resuming at step 2")


def test_a_rank_holds_half_of_the_parameters_and_one_block(tmp_path: Path) -> None:
    words = tokeniser(ToolLookup(), seed=0)
    deep = model(len(words), 3, words.eos_token_id).config
    deep.num_hidden_layers = 12
    type(model(len(words), 3, words.eos_token_id))(deep).save_pretrained(tmp_path / "deep")
    words.save_pretrained(tmp_path / "deep")
    figures = {}
    for sharding in ("none", "full"):
        document = order(tmp_path / "deep", tmp_path, "rloo", ROUNDS | {"weights": "full"}, sharding)
        with held_port() as port:
            figures[sharding] = parameter_bytes(document, tmp_path, port)
    print(json.dumps(figures))
    for whole, divided in zip(figures["none"], figures["full"], strict=True):
        assert whole["looks"] > 0 < divided["looks"]
        assert whole["most"] == whole["whole"]
        assert divided["most"] < 0.6 * divided["whole"]
