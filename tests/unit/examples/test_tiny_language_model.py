"""The tiny language model's example: its Jobs call what there is, and its gates ask what its world refuses."""

import json
import re
from pathlib import Path

import pytest
import yaml

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_environments.conversations.tool_lookup import PRIVATE
from learnloop_environments.make import make_world
from learnloop_environments.randomness import Split
from learnloop_gates.model_client import SuiteSettings
from learnloop_gates.recorded_tasks import replay
from learnloop_gates.suites import refusal

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "tiny-language-model"
AGENT = list(yaml.safe_load_all((FOLDER / "agent.yaml").read_text()))
SPEC = LearningAgentSpec.model_validate(next(item["spec"] for item in AGENT if item["kind"] == "LearningAgent"))
DATA = {item["metadata"]["name"]: item["data"] for item in AGENT if item["kind"] == "ConfigMap"}


def job(name: str):
    items = yaml.safe_load_all((FOLDER / name).read_text())
    return next(item for item in items if item["kind"] == "Job")["spec"]["template"]["spec"]["containers"][0]


def prompts(name: str) -> list[str]:
    return [json.loads(line)["prompt"] for text in DATA[name].values() for line in text.splitlines()]


@pytest.mark.parametrize("name", ["model.yaml", "bad-adapter.yaml"])
def test_a_job_runs_a_program_that_knows_its_options(name: str) -> None:
    container = job(name)
    source = FOLDER / Path(container["command"][-1]).name
    options = re.findall(r'add_argument\("(--\w+)"', source.read_text())
    given = {option.partition("=")[0] for option in container["args"] if option.startswith("--")}
    given |= set(re.findall(r"OPTION is (--\w+)", (FOLDER / name).read_text()))
    assert given
    assert given <= set(options)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_agent_is_served_from_the_file_that_the_job_makes() -> None:
    made = next(option for option in job("model.yaml")["args"] if option.startswith("--gguf="))
    language = SPEC.deployment.template.serving.language
    assert language.server.file == made.partition("=")[2]
    assert SPEC.task.language_model.base.uri == "pvc://models/tiny"


def test_the_tools_are_those_of_the_world() -> None:
    world = make_world(SPEC.task.environment.name)
    ours = [tool.to_openai()["function"] for tool in SPEC.task.language_model.tools]
    assert [tool["name"] for tool in ours] == [tool["function"]["name"] for tool in world.tools]
    assert [tool["parameters"] for tool in ours] == [tool["function"]["parameters"] for tool in world.tools]


def test_the_gates_ask_for_private_keys_alone_and_for_others_alone_as_the_world_does() -> None:
    private, others = prompts("tiny-private-keys"), prompts("tiny-tool-calls")
    assert all(PRIVATE in prompt.split(" ", 1)[0] + prompt.rsplit(" ", 2)[1] for prompt in private)
    assert not any(re.search(rf"\b{PRIVATE}\d", prompt) for prompt in others)
    world = make_world("ToolLookupGuarded-v1")
    openings = {world.begin(Split.TRAINING, 0, number).opening[0].content for number in range(2000)}
    assert set(others) <= openings
    assert len(set(private) & openings) > 20


def test_each_suite_has_as_many_different_cases_as_it_samples(tmp_path: Path) -> None:
    gates = SPEC.deployment.template.gates
    for suite in gates.suites:
        folder = tmp_path / suite.name
        folder.mkdir()
        for key, text in DATA[suite.data.config_map].items():
            (folder / key).write_text(text)
        settings = SuiteSettings(
            suite=suite.name,
            builtin=suite.builtin or "",
            samples=suite.samples,
            deployment="tiny",
            candidate="r",
            candidate_url="http://r",
            data=str(folder),
        )
        made = {"refusal": refusal, "replay": replay}[suite.builtin or ""](settings)
        assert len({case.last for case in made.cases}) >= suite.samples
