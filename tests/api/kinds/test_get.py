"""`kubectl learnloop get -w` before a real API server: what changes is told, and a version that is gone is no end."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.names import API_VERSION
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.live import Follower
from learnloop_operator.cli.objects import VersionGoneError

SECONDS = 30.0


@pytest.fixture
def rollout(kube: Any, namespace: str) -> dict[str, Any]:
    body = {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"model": {"uri": "uniform://discrete/2?observations=4"}},
    }
    kube.create(body)
    return body


@pytest.fixture
def follower(api_server: Path, namespace: str) -> Iterator[Follower]:
    found = Follower(KubernetesCluster(str(api_server), None, namespace), ["modeldeployments"])
    found.start()
    yield found
    found.stop()


def test_a_watch_from_a_version_that_is_gone_ends_so_that_the_caller_lists_again(
    api_server: Path, namespace: str, rollout: dict[str, Any]
) -> None:
    cluster = KubernetesCluster(str(api_server), None, namespace)
    with pytest.raises(VersionGoneError):
        list(cluster.watch("modeldeployments", "1"))
    version, known = cluster.listed("modeldeployments")
    assert (int(version) > 1, list(known)) == (True, ["x"])


def test_what_is_changed_and_deleted_is_told(kube: Any, rollout: dict[str, Any], follower: Follower) -> None:
    def until(reached: Any) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            change = follower.next(1.0)
            if change is not None and reached(change[1]):
                return
        raise AssertionError("never told")

    until(lambda known: list(known) == ["x"])
    kube.merge(rollout, {"status": {"phase": "Healthy", "verdict": "fine"}}, "status")
    until(lambda known: known["x"]["status"]["verdict"] == "fine")
    kube.delete(rollout)
    until(lambda known: known == {})


def test_in_a_pipe_there_is_one_line_for_each_change(
    api_server: Path, kube: Any, namespace: str, rollout: dict[str, Any]
) -> None:
    command = [sys.executable, "-m", "learnloop_operator.cli.main", "--kubeconfig", str(api_server), "-n", namespace]
    with subprocess.Popen([*command, "get", "x", "-w"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            kube.merge(rollout, {"status": {"phase": "Progressing", "stepText": "1/4", "weight": 10}}, "status")
            second = process.stdout.readline()
        finally:
            process.terminate()
    assert first.split(" ", 1)[1].startswith("mdep/x the operator has not looked at it yet")
    assert second.split(" ", 1)[1].startswith("mdep/x phase=Progressing step=1/4 weight=10%")
