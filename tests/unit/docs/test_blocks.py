"""Blocks that a reader copies from the documentation work in the program that they are for."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.kinds.training_job import TrainingJobSpec
from testing.command_line import parsed

from .blocks import ROOT, Block, blocks

SPECS = {
    "LearningAgent": LearningAgentSpec,
    "MemoryService": MemoryServiceSpec,
    "ModelDeployment": ModelDeploymentSpec,
    "RewardPolicy": RewardPolicySpec,
    "TrainingJob": TrainingJobSpec,
}
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _params(language: str) -> list:
    return [pytest.param(block, id=block.place) for block in blocks(language)]


@pytest.mark.parametrize("block", _params("yaml"))
def test_yaml_parses_and_our_kinds_are_understood(block: Block) -> None:
    for item in yaml.safe_load_all(block.text):
        if isinstance(item, dict) and item.get("apiVersion") == names.API_VERSION:
            SPECS[item["kind"]].model_validate(item["spec"])


@pytest.mark.parametrize("block", _params("python"))
def test_python_parses(block: Block) -> None:
    ast.parse(block.text)


def _commands(block: Block) -> list[list[str]]:
    joined = re.sub(r"\\\n\s*", " ", block.text)
    lines = [line[2:] for line in joined.split("\n") if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("block", _params("console"))
def test_no_command_leaves_the_folder_that_the_next_one_is_run_in(block: Block) -> None:
    assert not any(words[0] == "cd" for words in _commands(block)), "put it into a subshell"


@pytest.mark.parametrize("block", _params("console"))
def test_commands_name_verbs_targets_and_files_that_exist(block: Block) -> None:
    for words in _commands(block):
        if words[:2] == ["kubectl", "learnloop"] and not {"-h", "--help"} & set(words):
            until = next((index for index, word in enumerate(words) if word in ("|", ">", "&", "&&")), len(words))
            arguments = [word.split("|")[0] for word in words[2:until]]
            parsed(*arguments)
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word and word not in ("&",)} <= TARGETS, words
        for word in words:
            if re.match(r"(examples|charts|hack|docs)/", word):
                assert (ROOT / word).exists(), f"{word} does not exist"


def test_training_takes_the_environment_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from learnloop_environments.make import action_space

    block = next(item for item in blocks("python") if "own-environment" in item.place)
    (tmp_path / "rooms.py").write_text(block.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert action_space("rooms:Thermostat").actions == 3
