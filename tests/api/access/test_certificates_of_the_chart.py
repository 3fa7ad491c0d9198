"""The certificates that Helm makes: an upgrade keeps them, and makes what is due or of other names."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.certificates import read

ROOT = Path(__file__).resolve().parents[3]
Made = dict[str, Any]


@pytest.fixture
def rendered(api_server: Path, namespace: str) -> Callable[..., dict[str, Made]]:
    """The Secrets of an upgrade, by name: Helm asks the API server what is there."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)

    def render(*values: str) -> dict[str, Made]:
        command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", namespace]
        command += ["--dry-run=server", "--kubeconfig", str(api_server), "-s", "templates/tls/secrets.yaml"]
        done = subprocess.run([*command, *values], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return {item["metadata"]["name"]: item for item in yaml.safe_load_all(done.stdout) if item}

    return render


def text(secret: Made, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def test_an_upgrade_makes_no_certificate_anew_but_those_of_other_names(kube, namespace, rendered):
    first = rendered()
    for secret in first.values():
        kube.apply(secret)
    assert rendered() == first
    pods = rendered("--set", f"tls.namespaces={{{namespace}}}")["learnloop-tls"]
    kube.apply(pods)
    again = rendered("--set", f"tls.namespaces={{{namespace}}}")
    assert again == {**first, "learnloop-tls": pods}
    changed = rendered("--set", "fullnameOverride=", "--set", "nats.replicas=3", "--set", "tls.mode=self-signed")
    assert changed == first, "names of a part are the same with several"
    kube.merge(first["learnloop-tls-nats"], {"metadata": {"annotations": {"learnloop.dev/of": "other names"}}})
    again = rendered()
    assert again.pop("learnloop-tls-nats")["data"] != first["learnloop-tls-nats"]["data"]
    assert again == {name: secret for name, secret in first.items() if name != "learnloop-tls-nats"}
    kube.merge(first["learnloop-tls-data"], {"metadata": {"annotations": {"learnloop.dev/of": None}}})
    authority = read(text(first["learnloop-tls-authority"], "tls.crt"))
    renewed = rendered()["learnloop-tls-data"]
    assert read(text(renewed, "tls.crt")).signer_id == authority.key_id, "by the authority that is there"


def test_an_upgrade_renews_everything_in_the_last_third_of_its_life(kube, rendered):
    first = rendered("--set", "tls.selfSigned.days=30")
    for secret in first.values():
        kube.apply(secret)
    assert rendered("--set", "tls.selfSigned.days=30") == first
    due = rendered("--set", "tls.selfSigned.days=120")  # a third of it is longer than what is left
    for name, secret in due.items():
        assert secret["data"] != first[name]["data"], name
        assert (
            secret["metadata"]["annotations"]["learnloop.dev/ends"]
            > first[name]["metadata"]["annotations"]["learnloop.dev/ends"]
        )
    assert json.dumps(due) != json.dumps(first)
