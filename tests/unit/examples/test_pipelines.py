"""The example pipelines call the verbs that there are, with options that they have, and with no right too many."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.command_line import parsed

PIPELINES = Path(__file__).resolve().parents[3] / "examples" / "pipelines"
WORKFLOW = yaml.load((PIPELINES / "retrain.yml").read_text(), yaml.BaseLoader)
TEMPLATE = {item["kind"]: item for item in yaml.safe_load_all((PIPELINES / "workflow-template.yaml").read_text())}
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["retrain"]["steps"]


def commands() -> list[list[str]]:
    """Arguments of every call of the plugin; a variable of the shell or of Argo stands for a number."""
    shell = [shlex.split(step["run"])[2:] for step in STEPS if step.get("run", "").startswith("kubectl learnloop ")]
    argo = TEMPLATE["WorkflowTemplate"]["spec"]["templates"][0]["container"]["args"]
    return [[re.sub(r"^(\$\w+|\{\{.*\}\})$", "7", word) for word in words] for words in (*shell, argo)]


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_every_call_is_one_that_the_plugin_understands_and_waits(words: list[str]) -> None:
    options = parsed(*words).values
    assert options["wait"]
    assert options["junit"]
    assert options["timeout"] == 7


def test_both_pipelines_retrain_and_one_may_promote() -> None:
    assert [words[0] for words in commands()] == ["train", "promote", "train"]


def test_no_input_of_the_workflow_is_pasted_into_a_command() -> None:
    assert not [step["run"] for step in STEPS if "${{" in step.get("run", "")]
    used = {
        name for step in STEPS for name in re.findall(r"\$(AGENT|NAMESPACE|TIMEOUT|DEPLOYMENT)\b", step.get("run", ""))
    }
    assert used == set(WORKFLOW["jobs"]["retrain"]["env"])


def test_the_workflows_account_reads_and_annotates_and_nothing_more() -> None:
    rules = [rule for rule in TEMPLATE["Role"]["rules"] if rule["apiGroups"] == ["learnloop.dev"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch", "patch"}
    assert TEMPLATE["RoleBinding"]["subjects"][0]["name"] == TEMPLATE["WorkflowTemplate"]["spec"]["serviceAccountName"]


PROPOSE = yaml.load((PIPELINES / "propose.yml").read_text(), yaml.BaseLoader)
PROPOSE_STEPS: list[dict[str, Any]] = PROPOSE["jobs"]["propose"]["steps"]
PROPOSE_TEMPLATE = yaml.safe_load((PIPELINES / "propose-template.yaml").read_text())
[ARGO] = [template["container"] for template in PROPOSE_TEMPLATE["spec"]["templates"]]


def proposing() -> list[list[str]]:
    """Arguments of every call of the plugin in the two pipelines that propose; of variables the name."""
    lines = [line for step in PROPOSE_STEPS for line in step.get("run", "").splitlines()]
    lines += ARGO["args"][0].splitlines()
    calls = [re.split(r"kubectl[ -]learnloop ", line)[1] for line in lines if re.match(r"kubectl[ -]learnloop ", line)]
    return [[re.sub(r"^\$TIMEOUT$", "7", word) for word in shlex.split(call)] for call in calls]


@pytest.mark.parametrize("words", proposing(), ids=lambda words: words[0])
def test_every_call_of_the_pipelines_that_propose_is_one_that_the_plugin_understands(words: list[str]) -> None:
    call = parsed(*words)
    options = call.values
    if call.verb.__name__ == "propose":
        assert (options["name"], options["file"]) == ("$AGENT", "$MANIFEST")
        assert options["body"].endswith("/proposal.md")
    else:
        assert (call.verb.__name__, options["wait"], options["timeout"]) == ("train", True, 7)


def test_both_train_first_and_push_a_branch_that_only_a_person_merges() -> None:
    assert [words[0] for words in proposing()] == ["train", "propose"] * 2
    for script in ("\n".join(step.get("run", "") for step in PROPOSE_STEPS), ARGO["args"][0]):
        pushes = [line for line in script.splitlines() if "git push" in line]
        assert pushes
        assert all("main" not in line for line in pushes)
        assert "merge" not in script
        assert "--allow-empty" not in script


def test_no_input_of_the_pipelines_that_propose_is_pasted_into_a_command() -> None:
    assert not [step["run"] for step in PROPOSE_STEPS if "${{" in step.get("run", "")]
    assert "{{" not in ARGO["args"][0]
    told = {item["name"] for item in ARGO["env"]}
    assert set(re.findall(r"\$([A-Z_]+)", ARGO["args"][0])) <= told
    wanted = {name for step in PROPOSE_STEPS for name in re.findall(r"\$([A-Z]+)\b", step.get("run", ""))}
    assert wanted <= {*PROPOSE["jobs"]["propose"]["env"], "CONFIG"}


def test_the_account_of_the_proposing_pod_may_read_the_key_that_it_pushes_with() -> None:
    spec = PROPOSE_TEMPLATE["spec"]
    [key] = spec["volumes"]
    assert key["secret"]["defaultMode"] == 0o440, "its group's, which is not the container's by itself"
    assert spec["securityContext"]["fsGroup"] == spec["templates"][0]["container"]["securityContext"]["runAsUser"]


def test_the_workflow_that_proposes_may_write_branches_and_pull_requests_and_nothing_else() -> None:
    assert PROPOSE["permissions"] == {"contents": "write", "pull-requests": "write"}
