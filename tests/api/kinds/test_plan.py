"""`kubectl learnloop plan` before a real API server: its validation is the answer, and nothing is stored."""

from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.cli import main

GOOD = """
apiVersion: learnloop.dev/v1alpha1
kind: ModelDeployment
metadata: {name: planned}
spec:
  model: {uri: "uniform://discrete/2?observations=4"}
"""


def plan(api_server: Path, namespace: str, file: Path) -> int:
    return main.main(["--kubeconfig", str(api_server), "-n", namespace, "plan", "-f", str(file)])


def test_a_plan_is_checked_by_the_api_server_and_stores_nothing(
    api_server: Path, kube: Any, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD)
    assert plan(api_server, namespace, file) == 0
    said = capsys.readouterr().out
    assert "the first model: it serves as soon as its pods can" in said
    assert f"{namespace}/planned: would be new; nothing was written" in said
    listed = kube.call("GET", f"/apis/learnloop.dev/v1alpha1/namespaces/{namespace}/modeldeployments")
    assert listed["items"] == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("  rollout: {steps: [{weight: 10}]}", "the last step must have weight 100: add `- weight: 100`"),
        ("  rolout: {}", "spec.rolout: field not declared in schema"),
        ("  serving: {replicas: -1}", "spec.serving.replicas"),
    ],
)
def test_an_invalid_file_is_refused_with_the_field(
    api_server: Path, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, refusal: str
) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(GOOD + change + "\n")
    assert plan(api_server, namespace, file) == 1
    assert refusal in capsys.readouterr().err
