"""The plugin as it is installed: a wheel with few dependencies, against a real API server."""

from pathlib import Path

import pytest

from learnloop_api.names import API_VERSION
from testing.clean_venv import CleanVenv

MOST_PACKAGES = 15


def test_the_plugin_has_few_dependencies_and_works_on_an_api_server(api_server, kube, namespace, tmp_path):
    venv = CleanVenv.of("kubectl-learnloop", tmp_path)
    packages = venv.packages() - {"kubectl-learnloop"}
    assert len(packages) <= MOST_PACKAGES, sorted(packages)
    assert "steer" in venv.run("kubectl-learnloop", "--help")
    with pytest.raises(AssertionError, match=r"install 'kubectl-learnloop\[console\]'"):
        venv.run("kubectl-learnloop", "console", "--help")

    rollout = {"apiVersion": API_VERSION, "kind": "ModelDeployment", "metadata": {"name": "x", "namespace": namespace}}
    kube.create({**rollout, "spec": {"model": {"uri": "uniform://discrete/2?observations=4"}}})
    canary = {"revision": "bbbbbbbb", "uri": "https://m/1"}
    kube.merge(rollout, {"status": {"phase": "Progressing", "canary": canary}}, "status")
    common = ("--kubeconfig", str(api_server), "-n", namespace)
    assert "Progressing" in venv.run("kubectl-learnloop", *common, "why", "x")
    venv.run("kubectl-learnloop", *common, "pause", "x")
    assert "bbbbbbbb" in kube.get(rollout)["metadata"]["annotations"]["learnloop.dev/pause"]


def test_every_module_of_the_plugin_has_what_it_imports(tmp_path: Path) -> None:
    venv = CleanVenv.of("kubectl-learnloop[console]", tmp_path)
    venv.import_all("learnloop_operator", "learnloop_api", "learnloop_common")
