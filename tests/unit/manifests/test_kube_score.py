"""Findings of kube-score that are accepted: each has a reason, and covers what it names alone."""

from pathlib import Path

import pytest

from testing.manifests import kube_score
from testing.manifests.kube_score import Accepted, Finding, accepted, unaccepted

CPU = Finding("container-resources", "Deployment/walker-1", "trainer: CPU limit is not set")
MEMORY = CPU._replace(said="trainer: Memory limit is not set")


def test_every_accepted_finding_has_a_reason() -> None:
    assert all(len(line.reason.split()) > 3 for line in accepted())


def test_a_line_without_a_reason_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_score, "ACCEPTED", tmp_path / "accepted.txt")
    kube_score.ACCEPTED.write_text("# a comment\npod-probes Deployment/x\n")
    with pytest.raises(ValueError, match="'pod-probes Deployment/x' has no reason"):
        accepted()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (Accepted("container-resources:CPU", "Deployment/*", "x"), [MEMORY]),
        (Accepted("container-resources", "Deployment/walker-?", "x"), []),
        (Accepted("container-resources", "StatefulSet/*", "x"), [CPU, MEMORY]),
        (Accepted("pod-probes", "*", "x"), [CPU, MEMORY]),
    ],
)
def test_a_line_covers_its_check_its_objects_and_what_is_said(line: Accepted, left: list[Finding]) -> None:
    assert unaccepted([CPU, MEMORY, CPU], [line]) == left
