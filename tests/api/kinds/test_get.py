"""`kubectl learnloop get -w` before a real API server: what changes is told, and a version that is gone is no end."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.names import API_VERSION
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.objects import VersionGoneError


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


def test_a_watch_from_a_version_that_is_gone_ends_so_that_the_caller_lists_again(
    api_server: Path, namespace: str, rollout: dict[str, Any]
) -> None:
    cluster = KubernetesCluster(str(api_server), None, namespace)
    with pytest.raises(VersionGoneError):
        list(cluster.changes("modeldeployments", namespace, "1"))
    version, known = cluster.list_objects("modeldeployments", namespace)
    assert (int(version) > 1, [body["metadata"]["name"] for body in known]) == (True, ["x"])


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
            kube.delete(rollout)
            third = process.stdout.readline()
        finally:
            process.terminate()
    assert first.split(" ", 1)[1].startswith("mdep/x the operator has not looked at it yet")
    assert second.split(" ", 1)[1].startswith("mdep/x phase=Progressing step=1/4 weight=10%")
    assert third.split(" ", 1)[1] == "mdep/x is gone\n"
