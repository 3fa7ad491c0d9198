"""`make demo` uses kind or k3d where a Docker engine answers, says so, and otherwise makes a cluster from source."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from demo.cluster_choice import choose
from demo.container_cluster import deleted_on_failure, ensure, exists
from demo.narrator import Narrator
from demo.settings import Settings
from testing.fake_programs import Fakes
from toolkit.commands import CommandFailed, run
from toolkit.errors import Refusal

SETTINGS = Settings(context=None, namespace="demo", values=(), keep=False)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Only the programs that a test makes, and those without which no script runs."""
    fakes = Fakes(tmp_path)
    for name in ("bash", "timeout", "grep", "cat", "rm"):
        real = shutil.which(name)
        (fakes.folder / name).symlink_to(real)
    monkeypatch.setenv("PATH", str(fakes.folder))
    for name in ("kubectl", "helm", "docker"):
        fakes.program(name)
    return fakes


@pytest.mark.parametrize("tool", ["kind", "k3d"])
def test_a_docker_engine_and_a_tool_are_used_without_being_asked(machine: Fakes, tool: str) -> None:
    machine.program(tool)
    choice = choose(SETTINGS)
    assert choice.kind == tool
    assert f"a {tool} cluster, found with a Docker engine that answers" in choice.why
    assert "CLUSTER=source" in choice.why


@pytest.mark.parametrize(
    ("missing", "why"),
    [("kind", ""), ("kubectl", "kubectl on PATH"), ("helm", "helm on PATH"), ("docker", "answers `docker info`")],
)
def test_what_is_missing_leads_to_the_cluster_from_source(machine: Fakes, missing: str, why: str) -> None:
    machine.program("kind")
    (machine.folder / missing).unlink()
    if missing == "docker":  # a client without an engine
        machine.program("docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    choice = choose(SETTINGS)
    assert choice.kind == "source"
    assert why in choice.why
    assert missing == "docker" or not machine.calls(), "the engine is not even asked"
    assert choose(replace(SETTINGS, cluster="source")).kind == "source"


def test_a_context_of_the_user_comes_first(machine: Fakes) -> None:
    machine.program("kind")
    choice = choose(replace(SETTINGS, context="production", cluster="source"))
    assert choice.kind is None
    assert "production" in choice.why


def test_a_cluster_that_cannot_be_had_is_refused_with_what_is_missing(machine, monkeypatch):
    with pytest.raises(Refusal, match="CLUSTER=kind needs kind on PATH"):
        choose(replace(SETTINGS, cluster="kind"))
    monkeypatch.setenv("CLUSTER", "minikube")
    with pytest.raises(Refusal, match="'minikube'; set it to source, kind or k3d"):
        Settings.read()


KIND = """
case "$*" in
  "get clusters") [[ ! -e "$0.made" ]] || cat "$0.made" ;;
  create*) echo learnloop >"$0.made" ;;
  delete*) rm "$0.made" ;;
esac
"""


def test_a_cluster_in_containers_is_made_once_and_gets_the_training_operator_each_time(machine: Fakes) -> None:
    machine.program("kind", KIND)
    assert ensure("kind", Narrator()) == "kind-learnloop"
    assert ensure("kind", Narrator()) == "kind-learnloop"
    calls = machine.calls()
    assert len([call for call in calls if call.startswith("kind create cluster --name learnloop")]) == 1
    applied = [call for call in calls if call.startswith("kubectl --context kind-learnloop apply")]
    assert len(applied) == 2
    assert all("training-operator" in call for call in applied)


@pytest.mark.parametrize("before", [False, True])
def test_a_demo_that_fails_deletes_the_cluster_that_it_made_and_no_other(machine: Fakes, before: bool) -> None:
    machine.program("kind", KIND)
    if before:
        ensure("kind", Narrator())
    with pytest.raises(CommandFailed), deleted_on_failure("kind"):
        run([ensure("kind", Narrator()) and "no-such-story"])
    assert exists("kind") == before
