"""A program of others trains a language model: its adapter or weights are proven by learnloop's own conversations."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from learnloop_api.wire.training import Proof
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.errors import ConfigError
from learnloop_trainer.engines import check
from learnloop_trainer.engines.engine_process import EngineMistaken
from learnloop_trainer.errors import ExportError
from learnloop_trainer.export.language_model_files import read
from learnloop_trainer.language.base_model import folder_digest
from testing.language.tiny_model import model, tokeniser
from testing.training.engines import ROOT, trained

PROGRAM = """
import json, os
from pathlib import Path

folder = Path(os.environ["LEARNLOOP_ENGINE_DIRECTORY"])
order = json.loads((folder / "order.json").read_text())
model = order["language_model"]
assert order["observations"] is None and Path(model["folder"], "config.json").exists(), order

def hand_in(name, body):
    (folder / "new").write_bytes(body)
    (folder / "new").rename(folder / name)

hand_in("checkpoint", b"1")
hand_in("heartbeat.json", json.dumps({"step": order["total_steps"]}).encode())
for path in Path("TRAINED").glob("*el.safetensors"), Path("TRAINED").glob("adapter_config.json"):
    for file in path:
        hand_in(file.name, file.read_bytes())
hand_in("result.json", json.dumps({"step": order["total_steps"], "versions": {"mine": "1"}}).encode())
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, words = tmp_path_factory.mktemp("base"), tokeniser(ToolLookup(), seed=0)
    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("LEARNLOOP_ENGINE_DIRECTORY", "")


@pytest.fixture(scope="module")
def learned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with an adapter and with weights in bfloat16, as PEFT and transformers save them."""
    folder = tmp_path_factory.mktemp("learned")
    adapted = get_peft_model(causal(base), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    for name, part in adapted.named_parameters():
        torch.nn.init.normal_(part) if "lora_B" in name else None
    adapted.to(torch.bfloat16).save_pretrained(folder / "adapter")
    whole = causal(base)
    torch.nn.init.normal_(whole.lm_head.weight)
    whole.to(torch.bfloat16).save_pretrained(folder / "weights")
    return folder


def causal(base: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(base)


def proof_of(base: Path, trained_model: Path, folder: Path, script: str = PROGRAM, **spec: Any) -> Proof:
    (folder / "train.py").write_text(script.replace("TRAINED", str(trained_model)))
    spoken = {"base": {"uri": base.as_uri(), "sha256": folder_digest(base)}, "sampling": {"maxTokens": 10}}
    data = {"environment": "ToolLookup-v1", "languageModel": spoken, **spec.pop("data", {})}
    return trained(folder, [sys.executable, str(folder / "train.py")], data=data, evaluation={"episodes": 6}, **spec)


@pytest.mark.parametrize("whole", [False, True], ids=["adapter", "weights"])
def test_what_it_hands_in_is_proven_by_conversations_and_stored_as_learnloops_own(
    whole: bool, base: Path, learned: Path, tmp_path: Path
) -> None:
    proof = proof_of(base, learned / ("weights" if whole else "adapter"), tmp_path)
    assert (proof.engine, proof.algorithm, proof.step) == ("image", "custom", 300)
    assert proof.language is not None
    assert (proof.language.weights, proof.language.base_sha256) == ("full" if whole else "lora", folder_digest(base))
    assert proof.evaluation.episodes == proof.baseline.episodes == 6
    assert proof.baseline_uri == f"base://{folder_digest(base)}"
    assert proof.held_out is not None
    assert proof.held_out.seed > 2**32, "of one run in a million it is smaller"
    assert proof.parity.passed
    body = read(Path(urlsplit(proof.artifact_uri).path).read_bytes())
    assert body.adapter != whole
    moved = [array for name, array in body.arrays.items() if name.endswith(("lora_B.weight", "lm_head.weight"))]
    assert all(np.abs(array).max() > 1 for array in moved)
    if not whole:
        config = next(one for one in proof.exports if one.format == "peft-config")
        written = json.loads(Path(urlsplit(config.uri).path).read_text())
        assert (written["r"], written["lora_alpha"], sorted(written["target_modules"])) == (4, 8, ["q_proj", "v_proj"])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"use_dora": True}, r"adapter_config.json: use_dora: 'True' is not served; train a plain LoRA"),
        ({"modules_to_save": ["lm_head"]}, "adapter_config.json: modules_to_save: .*is not served"),
        ({"r": 2}, "adapter_model.safetensors: does not fit the base model: .* and r is 2"),
        ({"r": None}, "adapter_config.json: has no numbers r and lora_alpha"),
        ({"r": float("inf")}, "adapter_config.json: has no numbers r and lora_alpha"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(config: dict[str, Any], sentence: str, base, learned, tmp_path) -> None:
    other = tmp_path / "other"
    shutil.copytree(learned / "adapter", other)
    written = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps(written | config))
    with pytest.raises(EngineMistaken, match=sentence):
        proof_of(base, other, tmp_path)


@pytest.mark.parametrize(
    ("words", "others", "sentence"),
    [
        ("file.read_bytes()", "b'\\x80\\x04]\\x94.'", "(is not a safetensors file|has no numbers r and lora_alpha)"),
        ("adapter_config.json", "none", "ended without adapter_model.safetensors with adapter_config.json or model."),
        ('"versions"', '"behaviour": {"kind": "greedy"}, "versions"', "result.json: behaviour and witness are of"),
    ],
)
def test_files_that_break_the_contract_are_refused(
    words: str, others: str, sentence: str, base: Path, learned: Path, tmp_path: Path
) -> None:
    with pytest.raises(EngineMistaken, match=sentence):
        proof_of(base, learned / "adapter", tmp_path, PROGRAM.replace(words, others))


def test_weights_that_are_no_numbers_are_not_proven(base: Path, learned: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(learned / "adapter", other)
    weights = load_file(other / "adapter_model.safetensors")
    save_file({name: part * float("nan") for name, part in weights.items()}, other / "adapter_model.safetensors")
    with pytest.raises(ExportError, match="the exported weights differ from the trained ones"):
        proof_of(base, other, tmp_path)


def test_a_behaviour_is_of_policies_of_numbers(base: Path, learned: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spec.export.behaviour: 'greedy' is for policies of numbers; remove it"):
        proof_of(base, learned / "adapter", tmp_path, export={"behaviour": {"kind": "greedy"}})


def test_a_limit_on_steps_is_refused_as_by_our_own_learners(base: Path, learned: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spec.data.maxStepsPerEpisode: '3' is not heeded by worlds that are talked"):
        proof_of(base, learned / "adapter", tmp_path, data={"maxStepsPerEpisode": 3})


def test_a_program_for_a_language_model_is_checked_without_a_cluster(base, learned, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("TRAINED", str(learned / "adapter")))
    assert check.main(["--base", str(base), sys.executable, str(tmp_path / "train.py")]) == 0


VERL = """
import shutil, sys
from pathlib import Path
import pandas

given = dict(one.split("=", 1) for one in sys.argv[1:])
rounds = int(given["trainer.total_training_steps"])
assert len(pandas.read_parquet(given["data.train_files"])) == rounds * int(given["data.train_batch_size"])
assert Path(given["actor_rollout_ref.model.path"], "config.json").exists(), given
saved = Path(given["trainer.default_local_dir"])
for number in range(1, rounds + 1):
    shutil.copytree("TRAINED", saved / f"global_step_{number}/actor/lora_adapter")
    (saved / "latest_checkpointed_iteration.txt").write_text(str(number))
"""
"""Stands for verl's entry point, which needs GPUs and vLLM: its arguments, and the files that it leaves."""


def test_the_program_around_verl_is_short_and_keeps_to_the_contract(
    base: Path, learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, job = yaml.safe_load_all((ROOT / "examples/engines/verl.yaml").read_text())
    for name, text in config["data"].items():
        (tmp_path / name).write_text(text)
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "verl/trainer").mkdir(parents=True)
    (tmp_path / "verl/trainer/main_ppo.py").write_text(VERL.replace("TRAINED", str(learned / "adapter")))
    monkeypatch.setenv("LEARNLOOP_ENVIRONMENT_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    program = (ROOT / "examples/engines/verl_train.py").read_text()
    assert len(program.splitlines()) <= 60
    (tmp_path / "train.py").write_text(program.replace('Path("/tmp")', f'Path("{work}")'))
    spec = job["spec"] | {"totalSteps": 6, "settings": {"batch": 2, "group": 2, "rank": 2}}
    spec["data"] |= {"environmentConfigMap": None, "languageModel": {"sampling": {"maxTokens": 8}}}
    spec["data"]["languageModel"]["base"] = {"uri": base.as_uri(), "sha256": folder_digest(base)}
    more = {"steps": 6, "data": spec["data"], "settings": spec["settings"], "evaluation": {"episodes": 6}}
    proof = trained(tmp_path, [sys.executable, str(tmp_path / "train.py")], **more)
    assert (proof.step, proof.environment) == (8, "sums:Sums")
    assert read(Path(urlsplit(proof.artifact_uri).path).read_bytes()).adapter
