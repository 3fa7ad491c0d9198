"""Whole runs of one rank: from an order to a proof, through every algorithm, stopped and taken up again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from learnloop_api.wire.training import Proof
from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.acting.reward_model import RewardModel
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed import Alone
from learnloop_trainer.engines import engine_run, trl_training
from learnloop_trainer.engines.trl_training import TrlTraining
from learnloop_trainer.export.language_model_files import ADAPTER, BASE, KIND, read
from learnloop_trainer.language.algorithms import ALGORITHMS
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.language.rows import make as make_batch
from learnloop_trainer.language.sampler import Rollouts
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place, read_order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.language_training import begin_language
from learnloop_trainer.training_run.rank import run
from testing.language.recorded_turns import preferences, recorded_turn, turns
from testing.language.tiny_model import model

CPU = torch.device("cpu")
AT = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = {"batchEpisodes": 8, "groupSize": 4, "lora": {"rank": 2, "layers": ["q_proj", "v_proj"]}}
SMALL = {
    "rloo": POLICY,
    "grpo": {**POLICY, "weights": "full"},
    "ppo-lm": {**POLICY, "groupSize": 1, "minibatches": 2},
    "sft": {"batchEpisodes": 4},
    "dpo": {"batchPairs": 4},
    "bradley-terry": {"batchPairs": 4, "heldOutShare": 0.5},
}


@pytest.fixture(scope="module")
def base(words, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights as a folder. The word that ends an answer is its padding, too, as of many."""
    folder = tmp_path_factory.mktemp("base")
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    written = folder / "tokenizer_config.json"
    written.write_text(written.read_text().replace(words.pad_token, words.eos_token))
    return folder


@pytest.fixture
def ordered(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Order]:
    """Orders of small runs on that model, whose store is a folder."""
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")

    def make(algorithm: str = "rloo", steps: int = 16, block: dict | None = None, **more) -> Order:
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


def finished(order: Order, tmp_path: Path, run: Callable[..., None] = run) -> tuple[Proof, bytes]:
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    return proof, Path(urlsplit(proof.artifact_uri).path).read_bytes()


def experience(algorithm: str, words, tmp_path: Path) -> dict:
    if algorithm == "sft":
        return {"recording": turns(words, tmp_path)}
    if algorithm == "bradley-terry":
        return {"recording": preferences(words, tmp_path, 40)}
    return {"recording": preferences(words, tmp_path)} if algorithm == "dpo" else {}


@pytest.mark.parametrize("algorithm", sorted(set(SMALL) - {"bradley-terry"}))
def test_every_algorithm_ends_in_a_proof_that_names_what_it_was_made_of(algorithm, ordered, words, base, tmp_path):
    order = ordered(algorithm, 16, experience(algorithm, words, tmp_path))
    proof, body = finished(order, tmp_path)
    facts = proof.language
    assert (facts.base_sha256, facts.weights) == (folder_digest(base), "full" if algorithm == "grpo" else "lora")
    assert proof.step >= 16
    assert proof.parity.passed
    assert proof.parity.max_abs_difference < 1e-4
    assert proof.baseline_uri == f"base://{facts.base_sha256}"
    assert proof.evaluation.episodes == proof.baseline.episodes == 6
    assert proof.greedy is not None
    assert np.isfinite(facts.curves["loss"])
    assert {"transformers", "tokenizers", "torch"} <= set(proof.versions)
    trained = read(body)
    assert trained.facts[BASE] == facts.base_sha256
    assert (trained.facts[KIND] == ADAPTER) == (facts.weights == "lora")
    formats = [one.format for one in proof.exports]
    assert formats == (["peft-config", "gguf-lora"] if facts.weights == "lora" else [])
    if algorithm in ("sft", "dpo"):
        assert proof.experience.episodes == (8 if algorithm == "sft" else 6)
    else:
        assert {"reward", "kl", "entropy", "clipped", "mismatch", "length", "truncated", "tokens_per_second"} <= set(
            facts.curves
        )


def test_a_reward_model_ends_in_a_file_that_scores_and_in_a_proof_with_its_held_out_accuracy(
    ordered: Callable[..., Order], words, base: Path, tmp_path: Path
) -> None:
    block = experience("bradley-terry", words, tmp_path) | {"learningRate": 0.02}
    proof, body = finished(ordered("bradley-terry", 80, block), tmp_path)
    facts = proof.reward_model
    assert proof.language is None
    assert (facts.base_sha256, facts.pairs, facts.held_out_pairs) == (folder_digest(base), 20, 20)
    assert facts.accuracy == proof.evaluation.mean
    assert facts.accuracy_low <= facts.accuracy <= facts.accuracy_high
    assert proof.baseline.mean == 0.5, "chance"
    assert proof.difference is not None
    assert proof.parity.passed
    assert proof.parity.max_abs_difference < 1e-4
    assert proof.experience is not None
    scorer = RewardModel(body)
    assert scorer.facts[BASE] == facts.base_sha256
    assert 0 <= scorer.score("What is in box 1?", "12") <= 1


def test_rloo_by_trl_takes_the_step_that_engine_own_takes(ordered, tmp_path, monkeypatch):
    play = Rollouts.play
    worth = lambda episode: replace(episode, reward=float(episode.rows[0].ids.sum() % 7))  # noqa: E731
    monkeypatch.setattr(Rollouts, "play", lambda *arguments: [worth(episode) for episode in play(*arguments)])
    store, block, ends = DirectoryStore(tmp_path / "store", "lm-1"), {"klCoefficient": 0, "maxGradientNorm": 100}, []
    quiet = SimpleNamespace(stopper=SimpleNamespace(requested=False), reporter=Mock())
    for engine, begin in (("own", begin_language), ("trl", trl_training.begin)):
        training = begin(ordered("rloo", 8, block, spec={"engine": engine}), Alone(), CPU, store)
        before = training.learner.network.vector.clone()
        training.iterate(quiet)
        ends.append(training.learner.network.vector - before)
    assert ends[0].abs().max() > 1e-4
    assert torch.allclose(*ends, rtol=0.01, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "grpo", "bradley-terry"])
def test_trl_trains_on_the_same_data_and_under_the_same_proof(algorithm, ordered, words, tmp_path, monkeypatch):
    made, held, make, roll = [], [], TrlTraining._made, TrlTraining._rollout
    monkeypatch.setattr(trl_training, "CHUNK_MEMBERS", 16)
    monkeypatch.setattr(TrlTraining, "_made", lambda self: made.append(self) or make(self))
    monkeypatch.setattr(TrlTraining, "_rollout", lambda self, some, it: held.extend(some) or roll(self, some, it))
    more = {"epochs": 2} if algorithm == "grpo" else {}
    block = experience(algorithm, words, tmp_path) | {"learningRate": 0.02} | more
    proof, body = finished(ordered(algorithm, 32, block, spec={"engine": "trl"}), tmp_path, engine_run.run)
    assert (proof.engine, proof.step, proof.versions["trl"][:2]) == ("trl", 32, "1.")
    assert proof.parity.passed
    (training,) = made
    assert len(held) == (32 if algorithm == "grpo" else 0), "each is used twice"
    if algorithm == "bradley-terry":
        assert proof.reward_model.learned_accuracy > 0.6
        answers = [pair.chosen for pair in training.lessons[:4]] + [pair.rejected for pair in training.lessons[:4]]
        own = training.learner.network.answer_scores(make_batch(answers, range(8), CPU))
        batch = training._pairs([{"number": number} for number in range(4)])
        assert torch.allclose(training.apart(**batch).logits[:, 0], own, atol=1e-5)
    else:
        assert np.isfinite(proof.language.curves["loss"])
        trained = {name: array for name, array in read(body).arrays.items() if "lora_B" in name}
        assert algorithm == "grpo" or all(np.abs(array).max() > 1e-3 for array in trained.values()), "it begins at 0"


def test_a_pair_with_an_answer_of_no_tokens_is_left_out(ordered, words, tmp_path, monkeypatch):
    order = ordered("dpo", 8, experience("dpo", words, tmp_path))
    learner = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1")).learner
    pairs = learner.setting.experience.pairs()
    nothing = replace(pairs[0], rejected=replace(pairs[0].rejected, rows=[]))
    monkeypatch.setattr(type(learner.setting.experience), "pairs", lambda _: [nothing, *pairs])
    assert learner._fetched() == pairs


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "bradley-terry"])
def test_a_model_learns_from_the_conversations_and_preferences_of_several_agents(
    algorithm: str, ordered: Callable[..., Order], words: Any, tmp_path: Path
) -> None:
    recorded = Path(urlsplit(experience(algorithm, words, tmp_path)["recording"]).path).read_text()
    folder = tmp_path / "store" / ("trajectories" if algorithm == "sft" else "preferences")
    folder.mkdir(parents=True)
    for agent in ("ann", "bea"):
        (folder / f"{agent}.jsonl").write_text(recorded)
    agents = {"learningAgentRef": {"name": "ann"}, "agents": ["bea"]}
    proof, _ = finished(ordered(algorithm, data=agents), tmp_path)
    each = {"sft": 8, "dpo": 6, "bradley-terry": 40}[algorithm]
    assert proof.experience is not None
    assert (proof.experience.agent, proof.experience.agents) == ("ann", {"ann": each, "bea": each})
    assert proof.experience.steps == (2 if algorithm == "sft" else 4) * each
    if algorithm == "bradley-terry":
        facts = proof.reward_model
        assert (facts.pairs, facts.held_out_pairs) == (40, 20), "half of the agent's own, whose like of bea is left out"


def test_every_algorithm_of_the_contract_is_registered() -> None:
    from learnloop_api.kinds.training.algorithms import LANGUAGE

    assert set(ALGORITHMS) == set(LANGUAGE)
    assert set(SMALL) == set(LANGUAGE)


@pytest.mark.parametrize("algorithm", ["rloo", "ppo-lm", "dpo", "bradley-terry"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(algorithm, ordered, words, tmp_path):
    order = ordered(algorithm, 64, experience(algorithm, words, tmp_path))
    store, group = DirectoryStore(tmp_path / "store", "lm-1"), Alone()
    whole = begin_language(order, group, CPU, store)
    for _ in range(4):
        whole.learner.iterate()
    first = begin_language(order, group, CPU, store)
    for _ in range(2):
        first.learner.iterate()
    body = save(first, order, group)
    again = begin_language(order, group, CPU, store)
    assert restore(again, order, group, body) == f"resuming at step {first.learner.step}"
    for _ in range(2):
        again.learner.iterate()
    assert again.learner.network.digest() == whole.learner.network.digest()
    assert again.learner.step == whole.learner.step
    with pytest.raises(ValueError, match="belongs to another specification"):
        restore(again, ordered(algorithm, 128, experience(algorithm, words, tmp_path)), group, body)


def test_a_run_begins_from_the_adapter_that_serves_and_is_compared_with_it(ordered, tmp_path):
    first, body = finished(ordered(), tmp_path)
    serving = {"baselineUri": first.artifact_uri, "baselineSha256": first.artifact_sha256}
    order = ordered(spec={"initialPolicy": {"serving": True, "required": False}}, job="lm-2", **serving)
    store = DirectoryStore(tmp_path / "store", "lm-2")
    begun = begin_language(order, Alone(), CPU, store)
    assert begun.begun_from == first.artifact_uri
    own = read(body).arrays
    # safetensors lists its arrays in an order of its own: the first may be a lora_B.
    name = next(name for name in sorted(own) if ".lora_A" in name)
    adapter = dict(begun.learner.network.adapters or {})[name.removeprefix("base_model.model.").partition(".lora_A")[0]]
    assert np.array_equal(adapter.lora_A["default"].weight.detach().numpy(), own[name])
    proof, _ = finished(order, tmp_path)
    assert (proof.baseline_uri, proof.begun_from) == (first.artifact_uri, first.artifact_uri)
    wider = ordered(
        block={"lora": {"rank": 4}}, spec={"initialPolicy": {"serving": True, "required": False}}, **serving
    )
    assert begin_language(wider, Alone(), CPU, store).begun_from.startswith("the base model: spec.initialPolicy")


@pytest.mark.parametrize(("count", "learned"), [(8, 8), (64, 16)])
def test_recorded_turns_come_first_and_a_long_log_leaves_half_of_the_run_to_rollouts(
    count: int, learned: int, ordered: Callable[..., Order], words, tmp_path: Path
) -> None:
    order = ordered(steps=32, block={"experience": "both", "recording": turns(words, tmp_path, count)})
    training = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))
    lengths = []
    while training.learner.step < 32:
        before = training.learner.step
        lengths += [training.learner.iterate().curves["length"]] * (training.learner.step - before)
    assert lengths.count(2.0) == learned, "the record's conversations have two tokens"
    assert max(lengths[learned:]) > 2.0, "rollouts are longer"
    assert training.read.note.episodes == count


@pytest.mark.parametrize("strange", [{"sampled_ids": [100_000, 2]}, {"prompt_ids": [5] * 300}])
def test_one_conversation_that_the_model_cannot_read_ends_no_run(strange, ordered, words, tmp_path):
    recording = turns(words, tmp_path, count=8)
    bad = recorded_turn("bad", words, 1.0, **strange).to_step()
    path = Path(urlsplit(recording).path)
    lines = path.read_text().splitlines()
    trajectory = Trajectory.model_validate_json(lines[3]).model_copy(
        update={"steps": [bad.model_copy(update={"terminated": True})]}
    )
    path.write_text("\n".join([*lines[:3], trajectory.model_dump_json(), *lines[4:]]))
    order = ordered("rloo", 8, {"recording": recording})
    training = begin_language(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1"))
    training.learner.iterate()
    assert len(training.learner.setting.experience.every()) == 7


def by_trl(block: dict | None = None, **settings) -> dict:
    return {"algorithm": "grpo", "block": block, "spec": {"engine": "trl", "settings": settings}}


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
        (by_trl({"experience": "both"}), "experience: 'both' is not something that grpo of engine trl"),
        (by_trl({"recording": "file:///x"}), "hyperparameters.recording.*not heeded"),
        (by_trl({"entropyCoefficient": 0.1}), "hyperparameters.entropyCoefficient.*0.1.*not heeded"),
        (by_trl(learning_rate=1.0), "settings.learning_rate.*1.0.*follows from hyperparameters"),
        (by_trl(steps_per_generation=2), "settings.steps_per_generation"),
        (by_trl(fsdp=True), "settings.fsdp.*shards a model over ranks.*set spec.workers"),
        (by_trl(deepspeed={}), "settings.deepspeed.*not in the trainer's image"),
        (by_trl(gradient_accumulation_steps=0), "settings.gradient_accumulation_steps.*0.*is not a whole"),
        (by_trl(no_such=1), "are refused by GRPOConfig"),
        (by_trl(use_transformers_continuous_batching=True, sync_ref_model=True, beta=0), "are refused by GRPOTrainer"),
    ],
)
def test_what_does_not_fit_is_refused_with_field_value_and_fix(changes, words_of_it, ordered, tmp_path):
    order, session = ordered(**changes), cast(Any, None)
    begin = trl_training.begin if order.spec.trained_by == "trl" else begin_language
    with pytest.raises(ConfigError, match=words_of_it):
        begin(order, Alone(), CPU, DirectoryStore(tmp_path / "store", "lm-1")).iterate(session)


def test_a_base_model_that_is_not_all_in_its_digest_is_refused(ordered, base, tmp_path):
    store, folder = DirectoryStore(tmp_path / "store", "lm-1"), tmp_path / "linked"
    order = ordered(spoken={"base": {"uri": base.as_uri(), "sha256": "0" * 64}})
    with pytest.raises(ConfigError, match=f"base.sha256.*set it to {folder_digest(base)}"):
        begin_language(order, Alone(), CPU, store)
    shutil.copytree(base, folder)
    digest = folder_digest(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_text("{{ messages }}")
    (folder / "chat_template.jinja").symlink_to(tmp_path / "elsewhere")
    order = ordered(spoken={"base": {"uri": folder.as_uri(), "sha256": digest}})
    with pytest.raises(ConfigError, match=r"chat_template\.jinja.*does not cover"):
        begin_language(order, Alone(), CPU, store)


@pytest.mark.parametrize(("algorithm", "spoken"), [("ppo", True), ("rloo", False)])
def test_half_a_language_model_is_refused(algorithm: str, spoken: bool, base: Path) -> None:
    data = {"environment": "ToolLookup-v1"}
    if spoken:
        data["languageModel"] = {"base": {"uri": base.as_uri(), "sha256": "0" * 64}}
    document = {"job": "x", "spec": {"algorithm": algorithm, "totalSteps": 1, "data": data}}
    with pytest.raises(ConfigError, match=r"spec\.data\.languageModel"):
        read_order({"LEARNLOOP_TRAINING_SPEC": json.dumps(document)})
