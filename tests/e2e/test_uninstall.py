"""Runs last: installing twice changes nothing, uninstalling leaves nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from demo.api import Api
from demo.settings import RELEASE, ROOT, SYSTEM_NAMESPACE
from testing.real_cluster.cluster_actions import Rig

pytestmark = pytest.mark.disturbs

KINDS = (
    "deployments,statefulsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,pods,jobs"
)
CLUSTER_KINDS = "clusterroles,clusterrolebindings"


def _helm(*arguments: str) -> str:
    tool = Path(os.environ["KUBECONFIG"]).parent / "bin" / "helm"
    return subprocess.run([str(tool), *arguments], check=True, capture_output=True, text=True, timeout=300).stdout


def _chart() -> tuple[str, ...]:
    return (RELEASE, str(ROOT / "charts" / "learnloop"), "--namespace", SYSTEM_NAMESPACE,
            "--values", str(ROOT / "hack" / "cluster" / "values.yaml"))  # fmt: skip


def _versions(api: Api) -> dict[str, str]:
    items = json.loads(api.run("get", "-n", SYSTEM_NAMESPACE, f"{KINDS},{CLUSTER_KINDS}", "-o", "json"))["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": json.dumps(
            item.get("spec") or item.get("data") or item.get("rules")
        )
        for item in items
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == RELEASE and item["kind"] != "Pod"
    }


def test_applying_the_rendered_chart_twice_changes_nothing(rig: Rig) -> None:
    rendered = _helm("template", *_chart(), "--no-hooks")
    arguments = ("apply", "--server-side", "--force-conflicts", "-n", SYSTEM_NAMESPACE, "-f", "-")
    rig.api.run(*arguments, stdin=rendered)
    before = _generations(rig.api)
    rig.api.run(*arguments, stdin=rendered)
    assert _generations(rig.api) == before


def _generations(api: Api) -> dict[str, tuple[int, str]]:
    """Generation and content of everything the chart owns, without what controllers write in status."""
    objects = json.loads(api.run("get", "-n", SYSTEM_NAMESPACE, f"{KINDS},{CLUSTER_KINDS}", "-o", "json"))["items"]
    content = _versions(api)
    generations = {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("generation", 0) for item in objects
    }
    return {name: (generations[name], text) for name, text in content.items()}


def test_uninstalling_leaves_nothing_but_what_keep_says(rig: Rig) -> None:
    _helm("uninstall", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--wait", "--timeout", "4m")
    rig.until("an empty namespace", lambda: not _left(rig.api), 90)
    assert "learningagents.learnloop.dev" in rig.api.run("get", "crd", "-o", "name")
    if os.environ.get("KEEP") == "1" or os.environ.get("CONTEXT"):
        _helm("upgrade", "--install", *_chart(), "--create-namespace", "--wait", "--timeout", "8m")


def _left(api: Api) -> list[str]:
    names = api.run("get", "-n", SYSTEM_NAMESPACE, KINDS, "-o", "name").split()
    everywhere = api.run("get", CLUSTER_KINDS, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name").split()
    ours = [name for name in names if name not in {"configmap/kube-root-ca.crt", "serviceaccount/default"}]
    return ours + everywhere
