"""The operator may ask what a pod would be, and makes none: by the chart's policy, in the API server."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from .test_authors import ROOT, grant

OPERATOR = "system:serviceaccount:dry:learnloop-operator"
TEMPLATE = "templates/operator/dry-runs.yaml"


@pytest.fixture(scope="module")
def policy(kube: Any) -> Any:
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "dry"]
    command += ["--kube-version", "1.35.4", "-s", TEMPLATE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    objects = list(yaml.safe_load_all(done.stdout))
    for item in objects:
        kube.apply(item)
    yield
    for item in objects:
        kube.delete(item)


def said(api_server: Path, namespace: str, user: str, **query: str) -> str:
    """The refusal of a pod; "" where it is taken."""
    api = config.new_client_from_config(str(api_server))
    api.set_default_header("Impersonate-User", user)
    pod = {"metadata": {"generateName": "x-"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    try:
        client.CoreV1Api(api).create_namespaced_pod(namespace, pod, **query)
    except client.ApiException as error:
        return str(error.body)
    return ""


@pytest.mark.usefixtures("policy")
def test_the_operator_creates_pods_as_a_dry_run_only_and_nobody_else_is_asked(
    kube: Any, api_server: Path, namespace: str
) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    for user in ("operator", "maker"):
        grant(kube, namespace, user, rule)
    kube.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "operator-account"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "learnloop-operator", "namespace": "dry"}],
        }
    )
    for _ in range(120):  # a policy is in force some seconds after it was written
        if "as a dry run only" in said(api_server, namespace, OPERATOR):
            break
        time.sleep(0.5)
    assert "as a dry run only" in said(api_server, namespace, OPERATOR)
    assert said(api_server, namespace, OPERATOR, dry_run="All") == ""
    assert said(api_server, namespace, "maker") == ""
