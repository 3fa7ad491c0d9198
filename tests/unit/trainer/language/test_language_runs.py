"""Whole runs of one rank: from an order to a manifest, through every algorithm, stopped and taken up again."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from learnloop_api.wire.training import Manifest
from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.acting.reward_model import RewardModel
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.torch_group import Alone
from learnloop_trainer.export.language import ADAPTER, BASE, KIND, read
from learnloop_trainer.language.algorithms import ALGORITHMS
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.training_order import Order, Place, read_order
from learnloop_trainer.training_run.language_training import begin_language
from learnloop_trainer.training_run.rank import run
from learnloop_trainer.training_run.session import restore, save
from testing.language.recorded_turns import preferences, recorded_turn, turns
from testing.language.tiny_model import model

CPU = torch.device("cpu")
AT = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = {"batchEpisodes": 8, "groupSize": 4, "lora": {"rank": 2, "layers": ["q_proj", "v_proj"]}}
SMALL: dict[str, dict[str, Any]] = {
    "rloo": POLICY,
    "grpo": {**POLICY, "weights": "full"},
    "ppo-lm": {**POLICY, "groupSize": 1, "minibatches": 2},
    "sft": {"batchEpisodes": 4},
    "dpo": {"batchPairs": 4},
    "bradley-terry": {"batchPairs": 4, "heldOutShare": 0.5},
}


@pytest.fixture(scope="module")
def base(words: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights as a folder."""
    folder = tmp_path_factory.mktemp("base")
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def ordered(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Order]:
    """Orders of small runs on that model, whose store is a folder."""
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")

    def make(algorithm: str = "rloo", steps: int = 16, block: dict[str, Any] | None = None, **more: Any) -> Order:
        spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}, "sampling": {"maxTokens": 10}}
        data = {"environment": "ToolLookup-v1", "languageModel": spoken | more.pop("spoken", {})}
        spec = {
            "algorithm": algorithm,
            "hyperparameters": SMALL[algorithm] | (block or {}),
            "totalSteps": steps,
            "seed": 1,
            "evaluation": {"episodes": 6},
            "data": data | more.pop("data", {}),
            **more.pop("spec", {}),
        }
        return read_order({"LEARNLOOP_TRAINING_SPEC": json.dumps({"job": "lm-1", "spec": spec, **more})})

    return make


def finished(order: Order, tmp_path: Path) -> tuple[Manifest, bytes]:
    run(order, Place(), 1)
    manifest = DirectoryStore(tmp_path / "store", order.job).manifest()
    assert manifest is not None
    return manifest, Path(urlsplit(manifest.artifact_uri).path).read_bytes()


def experience(algorithm: str, words: Any, tmp_path: Path) -> dict[str, Any]:
    if algorithm == "sft":
        return {"recording": turns(words, tmp_path)}
    if algorithm == "bradley-terry":
        return {"recording": preferences(words, tmp_path, 40)}
    return {"recording": preferences(words, tmp_path)} if algorithm == "dpo" else {}


@pytest.mark.parametrize("algorithm", sorted(set(SMALL) - {"bradley-terry"}))
def test_every_algorithm_ends_in_a_manifest_that_names_what_it_was_made_of(
    algorithm: str, ordered: Callable[..., Order], words: Any, base: Path, tmp_path: Path
) -> None:
    order = ordered(algorithm, 16, experience(algorithm, words, tmp_path))
    manifest, body = finished(order, tmp_path)
    told = manifest.language
    assert told is not None
    assert (told.base_sha256, told.weights) == (folder_digest(base), "full" if algorithm == "grpo" else "lora")
    assert manifest.step >= 16
    assert manifest.parity.passed
    assert manifest.parity.max_abs_difference < 1e-4
    assert manifest.baseline_uri == f"base://{told.base_sha256}"
    assert manifest.evaluation.episodes == manifest.baseline.episodes == 6
    assert manifest.greedy is not None
    assert np.isfinite(told.curves["loss"])
    assert {"transformers", "tokenizers", "torch"} <= set(manifest.versions)
    trained = read(body)
    assert trained.facts[BASE] == told.base_sha256
    assert (trained.facts[KIND] == ADAPTER) == (told.weights == "lora")
    formats = [one.format for one in manifest.exports]
    assert formats == (["peft-config", "gguf-lora"] if told.weights == "lora" else [])
    if algorithm in ("sft", "dpo"):
        assert manifest.experience is not None
        assert manifest.experience.episodes == (8 if algorithm == "sft" else 6)
    else:
        assert {"reward", "kl", "entropy", "clipped", "mismatch", "length", "truncated", "tokens_per_second"} <= set(
            told.curves
        )


def test_a_reward_model_ends_in_a_file_that_scores_and_in_a_manifest_with_its_held_out_accuracy(
    ordered: Callable[..., Order], words: Any, base: Path, tmp_path: Path
) -> None:
    block = experience("bradley-terry", words, tmp_path) | {"learningRate": 0.02}
    manifest, body = finished(ordered("bradley-terry", 80, block), tmp_path)
    told = manifest.reward_model
    assert told is not None
    assert manifest.language is None
    assert (told.base_sha256, told.pairs, told.held_out_pairs) == (folder_digest(base), 20, 20)
    assert told.accuracy == manifest.evaluation.mean
    assert told.accuracy_low <= told.accuracy <= told.accuracy_high
    assert manifest.baseline.mean == 0.5, "chance"
    assert manifest.difference is not None
    assert manifest.parity.passed
    assert manifest.parity.max_abs_difference < 1e-4
    assert manifest.experience is not None
    scorer = RewardModel(body)
    assert scorer.facts[BASE] == told.base_sha256
    assert 0 <= scorer.score("What is in box 1?", "12") <= 1


def test_every_algorithm_of_the_contract_is_registered() -> None:
    from learnloop_api.kinds.training.algorithms import LANGUAGE

    assert set(ALGORITHMS) == set(LANGUAGE)
    assert set(SMALL) == set(LANGUAGE)


@pytest.mark.parametrize("algorithm", ["rloo", "ppo-lm", "dpo", "bradley-terry"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    algorithm: str, ordered: Callable[..., Order], words: Any, tmp_path: Path
) -> None:
    order = ordered(algorithm, 64, experience(algorithm, words, tmp_path))
    store, group = DirectoryStore(tmp_path / "store", "lm-1"), Alone()
    whole = begin_language(order, group, CPU, store)
    for _ in range(4):
        whole.learner.iterate()
    first = begin_language(order, group, CPU, store)
    for _ in range(2):
        first.learner.iterate()
    body = save(first, order, group)
    assert body is not None
    again = begin_language(order, group, CPU, store)
    assert restore(again, order, group, body) == f"resuming at step {first.learner.step}"
    for _ in range(2):
        again.learner.iterate()
    assert again.learner.network.digest() == whole.learner.network.digest()
    assert again.learner.step == whole.learner.step
    with pytest.raises(ValueError, match="belongs to another specification"):
        restore(again, ordered(algorithm, 128, experience(algorithm, words, tmp_path)), group, body)


def test_a_run_begins_from_the_adapter_that_serves_and_is_compared_with_it(
    ordered: Callable[..., Order], tmp_path: Path
) -> None:
    first, body = finished(ordered(), tmp_path)
    serving = {"baselineUri": first.artifact_uri, "baselineSha256": first.artifact_sha256}
    order = ordered(spec={"initialPolicy": {"serving": True, "required": False}}, job="lm-2", **serving)
    store = DirectoryStore(tmp_path / "store", "lm-2")
    begun = begin_language(order, Alone(), CPU, store)
    assert begun.begun_from == first.artifact_uri
    own = read(body).arrays
    # safetensors lists its arrays in an order of its own: the first may be a lora_B.
    name = next(name for name in sorted(own) if ".lora_A" in name)
    found = dict(begun.learner.network.adapters or {})[name.removeprefix("base_model.model.").partition(".lora_A")[0]]
    assert np.array_equal(found.lora_A["default"].weight.detach().numpy(), own[name])
    manifest, _ = finished(order, tmp_path)
    assert (manifest.baseline_uri, manifest.begun_from) == (first.artifact_uri, first.artifact_uri)
    wider = ordered(
        block={"lora": {"rank": 4}}, spec={"initialPolicy": {"serving": True, "required": False}}, **serving
    )
    assert begin_language(wider, Alone(), CPU, store).begun_from.startswith("the base model: spec.initialPolicy")


def test_recorded_turns_and_rollouts_are_learned_from_one_after_the_other(
    ordered: Callable[..., Order], words: Any, tmp_path: Path
) -> None:
    order = ordered(steps=24, block={"experience": "both", "recording": turns(words, tmp_path)})
    training = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))
    first, second = training.learner.iterate(), training.learner.iterate()
    assert first.curves["length"] == 2.0, "the record's conversations have two tokens"
    assert second.curves["length"] > 2.0, "rollouts are longer"
    assert training.read.note is not None
    assert training.read.note.episodes == 8


def test_a_long_log_leaves_half_of_the_run_to_rollouts(
    ordered: Callable[..., Order], words: Any, tmp_path: Path
) -> None:
    order = ordered(steps=32, block={"experience": "both", "recording": turns(words, tmp_path, count=64)})
    training = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))
    lengths = []
    while training.learner.step < 32:
        before = training.learner.step
        lengths += [training.learner.iterate().curves["length"]] * (training.learner.step - before)
    assert lengths.count(2.0) == 16, "the record's conversations have two tokens"
    assert max(lengths[16:]) > 2.0, "rollouts are longer"


@pytest.mark.parametrize("strange", [{"sampled_ids": [100_000, 2]}, {"prompt_ids": [5] * 300}])
def test_one_conversation_that_the_model_cannot_read_ends_no_run(
    strange: dict[str, Any], ordered: Callable[..., Order], words: Any, tmp_path: Path
) -> None:
    recording = turns(words, tmp_path, count=8)
    bad = recorded_turn("bad", words, 1.0, **strange).to_step()
    path = Path(urlsplit(recording).path)
    kept = path.read_text().splitlines()
    trajectory = Trajectory.model_validate_json(kept[3]).model_copy(
        update={"steps": [bad.model_copy(update={"terminated": True})]}
    )
    path.write_text("\n".join([*kept[:3], trajectory.model_dump_json(), *kept[4:]]))
    order = ordered("rloo", 8, {"recording": recording})
    training = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))
    training.learner.iterate()
    assert len(training.learner.setting.experience.every()) == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "words_of_it"),
    [
        ({"spoken": {"base": {"uri": "file:///no/such/folder", "sha256": "0" * 64}}}, "is not a folder in this pod"),
        ({"spoken": {"templateSha256": "0" * 64}}, "templateSha256.*set it to"),
        ({"spoken": {"contextLength": 4096}}, "contextLength.*4096.*lower it"),
        ({"spoken": {"sampling": {"topP": 0.9}}}, "sampling.topP.*0.9.*cuts the distribution"),
        ({"spoken": {"sampling": {"temperature": 0}}}, "sampling.temperature.*draws nothing"),
        ({"block": {"experience": "recorded"}}, "learningAgentRef.*is missing"),
        ({"data": {"rewards": "policy"}}, "spec.data.rewards.*experience: recorded"),
        ({"block": {"lora": {"layers": ["nothing"]}}}, "lora.layers.*names no linear layers"),
    ],
)
def test_what_does_not_fit_is_refused_with_field_value_and_fix(
    changes: dict[str, Any], words_of_it: str, ordered: Callable[..., Order], tmp_path: Path
) -> None:
    order = ordered(**changes)
    store = DirectoryStore(tmp_path / "store", "lm-1")
    with pytest.raises(ConfigError, match=words_of_it):
        begin_language(order, Alone(), CPU, store).learner.iterate()


def test_another_base_model_than_the_order_names_is_refused_with_the_right_digest(
    ordered: Callable[..., Order], base: Path, tmp_path: Path
) -> None:
    order = ordered(spoken={"base": {"uri": base.as_uri(), "sha256": "0" * 64}})
    with pytest.raises(ConfigError, match=f"base.sha256.*set it to {folder_digest(base)}"):
        begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))


def test_a_base_model_with_a_link_that_its_digest_does_not_cover_is_refused(
    ordered: Callable[..., Order], base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "linked"
    shutil.copytree(base, folder)
    digest = folder_digest(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_text("{{ messages }}")
    (folder / "chat_template.jinja").symlink_to(tmp_path / "elsewhere")
    order = ordered(spoken={"base": {"uri": folder.as_uri(), "sha256": digest}})
    with pytest.raises(ConfigError, match=r"chat_template\.jinja.*does not cover"):
        begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))


@pytest.mark.parametrize(("algorithm", "spoken"), [("ppo", True), ("rloo", False)])
def test_half_a_language_model_is_refused(algorithm: str, spoken: bool, base: Path) -> None:
    data: dict[str, Any] = {"environment": "ToolLookup-v1"}
    if spoken:
        data["languageModel"] = {"base": {"uri": base.as_uri(), "sha256": "0" * 64}}
    document = {"job": "x", "spec": {"algorithm": algorithm, "totalSteps": 1, "data": data}}
    with pytest.raises(ConfigError, match=r"spec\.data\.languageModel"):
        read_order({"LEARNLOOP_TRAINING_SPEC": json.dumps(document)})
