"""The example pipelines call the verbs that there are, with options that they have, and with no right too many."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from testing.command_line import parsed

PIPELINES = Path(__file__).resolve().parents[3] / "examples" / "pipelines"
WORKFLOW = yaml.load((PIPELINES / "retrain.yml").read_text(), yaml.BaseLoader)
TEMPLATE = {item["kind"]: item for item in yaml.safe_load_all((PIPELINES / "workflow-template.yaml").read_text())}
STEPS = WORKFLOW["jobs"]["retrain"]["steps"]


def commands() -> list[list[str]]:
    """Arguments of every call of the plugin; a variable of the shell or of Argo stands for a number."""
    shell = [shlex.split(step["run"])[2:] for step in STEPS if step.get("run", "").startswith("kubectl learnloop ")]
    argo = TEMPLATE["WorkflowTemplate"]["spec"]["templates"][0]["container"]["args"]
    return [[re.sub(r"^(\$\w+|\{\{.*\}\})$", "7", word) for word in words] for words in (*shell, argo)]


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_every_call_is_one_that_the_plugin_understands_and_waits(words: list[str]) -> None:
    options = parsed(*words).values
    assert options["wait"]
    assert options["timeout"] == 7


def test_both_pipelines_retrain() -> None:
    assert [words[0] for words in commands()] == ["train", "train"]


def test_no_input_of_the_workflow_is_pasted_into_a_command() -> None:
    assert not [step["run"] for step in STEPS if "${{" in step.get("run", "")]
    used = {name for step in STEPS for name in re.findall(r"\$(AGENT|NAMESPACE|TIMEOUT)\b", step.get("run", ""))}
    assert used == set(WORKFLOW["jobs"]["retrain"]["env"])


def test_the_workflows_account_reads_and_annotates_and_nothing_more() -> None:
    rules = [rule for rule in TEMPLATE["Role"]["rules"] if rule["apiGroups"] == ["learnloop.dev"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch", "patch"}
    assert TEMPLATE["RoleBinding"]["subjects"][0]["name"] == TEMPLATE["WorkflowTemplate"]["spec"]["serviceAccountName"]
