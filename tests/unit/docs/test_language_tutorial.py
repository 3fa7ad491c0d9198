"""The tutorial that teaches a language model: its digest is the trainer's, and its agent's run learns and proves."""

import json
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Place, read_order
from learnloop_trainer.training_run.rank import run
from testing.language.tiny_model import model, tokeniser

from .blocks import ROOT, blocks

PAGE = "teach-a-language-model"
EXAMPLE = ROOT / "examples" / "language-model"
TEMPLATES = [next(item for item in blocks("yaml") if PAGE in item.place).text]
TEMPLATES.append((EXAMPLE / "trained.yaml").read_text())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of step 1, but with random weights."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    words = tokeniser(ToolLookup(), 0)
    model(len(words), 0, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def test_the_command_prints_the_digest_that_a_run_wants(tiny: Path) -> None:
    block = next(item for item in blocks("console") if PAGE in item.place and "sha256sum" in item.text)
    done = subprocess.run(
        ["bash", "-c", block.text.strip().removeprefix("$ ")],
        cwd=tiny.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == folder_digest(tiny)


def test_the_model_lies_where_it_was_copied_to() -> None:
    claim, pod = yaml.safe_load_all((EXAMPLE / "volume.yaml").read_text())
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    (copy,) = (block.text for block in blocks("console") if PAGE in block.place and "kubectl cp" in block.text)
    assert f"kubectl cp tiny {pod['metadata']['name']}:{mount['mountPath']}\n" in copy
    for text in TEMPLATES:
        task = list(yaml.safe_load_all(text))[1]["spec"]["task"]
        assert task["languageModel"]["base"]["uri"] == f"pvc://{claim['metadata']['name']}/tiny"


@pytest.mark.parametrize("text", TEMPLATES, ids=["tutorial", "example"])
def test_its_users_clients_need_not_name_the_tools_that_it_was_taught(text: str) -> None:
    named = list(yaml.safe_load_all(text))[1]["spec"]["task"]["languageModel"]["tools"]
    assert [tool["parameters"] for tool in named] == [tool["function"]["parameters"] for tool in ToolLookup().tools]
    assert [tool["name"] for tool in named] == [tool["function"]["name"] for tool in ToolLookup().tools]


@pytest.mark.parametrize("text", TEMPLATES, ids=["tutorial", "example"])
def test_a_model_of_few_words_is_not_asked_by_a_suite_for_what_it_never_met(text: str) -> None:
    deployment = list(yaml.safe_load_all(text))[1]["spec"]["deployment"]["template"]
    assert [suite["builtin"] for suite in deployment["gates"]["suites"]] == ["leak"], "it passes by saying nothing"


@pytest.mark.parametrize("text", TEMPLATES, ids=["tutorial", "example"])
def test_its_agents_run_learns_and_proves(text, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    agent = LearningAgentSpec.model_validate(list(yaml.safe_load_all(text))[1]["spec"]).to_kube()
    spoken = agent["task"]["languageModel"]
    spoken["base"] |= {"uri": tiny.as_uri(), "sha256": folder_digest(tiny)}
    environment = agent["task"]["external"]["trainingEnvironment"]
    spec = agent["training"]["template"] | {"data": {"environment": environment, "languageModel": spoken}}
    # As in the tutorial, but for one small round, and before any recorded turn.
    spec |= {"totalSteps": 16, "evaluation": {"episodes": 8}}
    spec["hyperparameters"] |= {"batchEpisodes": 16, "experience": "rollouts"}
    order = read_order({"LEARNLOOP_TRAINING_SPEC": json.dumps({"job": "lookups-1", "spec": spec})})
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert Path(urlsplit(proof.artifact_uri).path).stat().st_size > 0
    assert proof.language is not None
    assert proof.environment == environment
