"""Uninstalling keeps data and what opens it; the next installation of that name finds both."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop_operator import bootstrap
from learnloop_operator.kube.http_transport import KubeHttp
from testing.operators.api_access import from_kubeconfig

ROOT = Path(__file__).resolve().parents[3]
LOST_DATABASE = ("--set", "postgresql.persistence.keep=false")
"""Only artifacts stay: encrypted ones are of no use without their keys."""
AGENT = {
    "rewardPolicyRef": {"name": "reward"},
    "suspend": True,
    "task": {"observations": 4, "actions": 2, "environment": {"name": "CartPole-v1", "successReturn": 195}},
    "training": {"triggers": {"episodes": 20}, "template": {"algorithm": "ppo", "totalSteps": 1000}},
}


@pytest.fixture
def helm(api_server: Path, namespace: str) -> Callable[..., str]:
    """Helm against the API server, for one release in the test's namespace."""
    program = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)

    def run(*arguments: str) -> str:
        command = [program.stdout.strip(), *arguments, "-n", namespace, "--kubeconfig", str(api_server), "--no-hooks"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("values", [(), LOST_DATABASE], ids=["all data", "artifacts alone"])
async def test_a_second_installation_finds_the_data_and_the_keys_of_the_first(
    api_server: Path, kube, helm: Callable[..., str], namespace: str, values: tuple[str, ...]
) -> None:
    def named(version: str, kind: str, name: str) -> dict:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    install = ("install", "kept", str(ROOT / "charts" / "learnloop"), "--take-ownership", *values)
    secret = named("v1", "Secret", "kept-learnloop-credentials")
    helm(*install)
    http = KubeHttp(from_kubeconfig(api_server))
    try:
        assert await bootstrap.fill(http, namespace, secret["metadata"]["name"])
        agent = {**named("learnloop.dev/v1alpha1", "LearningAgent", "pole"), "spec": AGENT}
        made = kube.create(agent)
        volume = named("v1", "PersistentVolumeClaim", "kept-learnloop-artifacts")
        keys, claim = kube.get(secret)["data"], kube.get(volume)["metadata"]["uid"]
        helm("uninstall", "kept")
        with pytest.raises(kube.Refused):
            kube.get(named("apps/v1", "Deployment", "kept-learnloop-operator"))
        assert kube.get(secret)["data"] == keys
        assert kube.get(volume)["metadata"]["uid"] == claim
        assert kube.get(agent)["metadata"]["uid"] == made["metadata"]["uid"]
        helm(*install)
        assert kube.get(secret)["data"] == keys
        assert kube.get(volume)["metadata"]["uid"] == claim
        assert not await bootstrap.fill(http, namespace, secret["metadata"]["name"]), "nothing was missing"
    finally:
        await http.close()
        helm("uninstall", "kept", "--ignore-not-found")
