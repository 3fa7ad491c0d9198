"""`kubectl learnloop plan`: the files that it accepts, and its preview."""

from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.cli.objects import CommandError
from testing.command_line import typed

SPEC: dict[str, Any] = {"model": {"uri": "https://m/1", "sha256": "ab" * 32}}
FILE = "apiVersion: learnloop.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: x}\nspec: {}\n"


class Server:
    """An API server that stores SPEC."""

    namespace = "ns"

    def __init__(self, status: dict[str, Any] | None = None) -> None:
        self.live = {"metadata": {"name": "x"}, "spec": SPEC, "status": status or {}} if status is not None else None

    def find(self, plural: str, name: str) -> dict[str, Any] | None:
        return self.live

    def dry_run(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "spec": SPEC}


def run(server: Server, file: Path) -> str:
    return typed(server, "plan", "-f", str(file))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(FILE)
    return path


def test_a_new_object_serves_its_first_model_and_nothing_is_written(file: Path) -> None:
    said = run(Server(), file)
    assert "the first model: it serves as soon as its pods can" in said
    assert "10 % (20 episodes) → 25 % (20 episodes)" in said
    assert "ns/x: would be new; nothing was written" in said


def test_a_new_revision_says_which_pods_come_and_how_it_starts(file: Path) -> None:
    stable = {"revision": "bbbbbbbb", "uri": "https://m/0", "replicas": 1, "readyReplicas": 1}
    said = run(Server({"stable": stable}), file)
    assert "a new revision" in said
    assert "it starts as a canary without episodes" in said
    assert " × 1" in said


def test_a_blocked_revision_is_called_blocked(file: Path) -> None:
    new = run(Server(), file).splitlines()[0].split()[1]
    pinned = {
        "revision": new,
        "uri": "https://m/1",
        "reason": "Aborted",
        "message": "too bad",
        "at": "2026-01-01T00:00:00Z",
    }
    stable = {"revision": "bbbbbbbb", "uri": "https://m/0", "replicas": 1, "readyReplicas": 1}
    said = run(Server({"stable": stable, "blockedRevisions": [pinned]}), file)
    assert "blocked since 2026-01-01T00:00:00Z: too bad; `kubectl learnloop retry`" in said
    assert "no new arm" in said


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("kind: [", "cannot be read as YAML"),
        ("kind: Pod", r"holds \['Pod'\]: give it exactly one ModelDeployment"),
        (FILE + "---\n" + FILE, "exactly one ModelDeployment"),
        (FILE.replace("v1alpha1", "v9"), "set apiVersion: learnloop.dev/v1alpha1"),
    ],
)
def test_a_file_that_is_no_model_deployment_is_refused(file: Path, text: str, refusal: str) -> None:
    file.write_text(text)
    with pytest.raises(CommandError, match=refusal):
        run(Server(), file)
