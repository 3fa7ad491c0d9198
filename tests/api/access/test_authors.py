"""Who has pods made for them gets nothing that they lack: the chart's policy before a real API server."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from learnloop_api.kinds.base import PodOptions
from learnloop_api.names import API_VERSION

ROOT = Path(__file__).resolve().parents[3]
EVERYTHING = {"apiGroups": ["learnloop.dev"], "resources": ["*"], "verbs": ["*"]}
VALUES: dict[str, Any] = {
    "affinity": {"nodeAffinity": {}},
    "annotations": {"prometheus.io/scrape": "true"},
    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "payroll", "key": "password"}}}],
    "image": "registry.example.com/mine:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "labels": {"app": "somebody-elses"},
    "nodeSelector": {"kubernetes.io/hostname": "control-plane"},
    "priorityClassName": "system-node-critical",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "others"}],
    "resources": {"limits": {"cpu": "1"}},
    "schedulerName": "own",
    "serviceAccountName": "admin",
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "volumes": [{"name": "v", "secret": {"secretName": "payroll"}}],
}
"""A value of every field of PodOptions."""
FREE = ("imagePullPolicy", "resources")
HOST = [{"name": "v", "hostPath": {"path": "/"}}]
TOKEN = [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]


def shown(*more: str) -> list[dict[str, Any]]:
    """The policy as the chart renders it."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "authors"]
    values = [
        "--set",
        "authors.askRights=always",
        *more,
        "-s",
        "templates/authors/policy.yaml",
        "-s",
        "templates/authors/verdicts.yaml",
    ]
    text = subprocess.run([*command, *values], capture_output=True, text=True, timeout=240, check=True).stdout
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def policy(kube: Any) -> Iterator[None]:
    """In force for namespaces that ask for it, so that other tests go on as before."""
    objects = shown()
    for binding in (item for item in objects if item["kind"].endswith("Binding")):
        binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {"authors": "asked"}}}
    for item in objects:
        kube.apply(item)
    yield
    for item in objects:
        kube.delete(item)


def grant(kube: Any, namespace: str, user: str, *rules: dict[str, Any]) -> None:
    metadata = {"namespace": namespace, "name": user}
    rbac = "rbac.authorization.k8s.io"
    kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
    kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }
    )


def body(kind: str, pod: dict[str, Any], name: str) -> dict[str, Any]:
    model = {"uri": "uniform://discrete/2?observations=4"}
    training = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}, "pod": pod}
    specs: dict[str, Any] = {
        "TrainingJob": training,
        "ModelDeployment": {"model": model, "serving": {"pod": pod}},
        "MemoryService": {"storage": {"size": "1Gi"}, "pod": pod},
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": specs[kind]}


class People:
    """What becomes of an object that somebody writes, without writing it."""

    def __init__(self, api_server: Path, namespace: str) -> None:
        self._api_server, self._namespace = api_server, namespace

    def refusal(self, user: str, kind: str, pod: dict[str, Any], name: str = "x", **changes: Any) -> str:
        """ "" where it is taken."""
        api = config.new_client_from_config(str(self._api_server))
        api.set_default_header("Impersonate-User", user)
        made = body(kind, pod, name)
        made["spec"] |= changes
        return self._posted(api, f"/apis/{API_VERSION}/namespaces/{self._namespace}/{kind.lower()}s", made)

    def verdict(self, user: str) -> str:
        """The refusal of a routing ConfigMap with a verdict that `user` writes."""
        api = config.new_client_from_config(str(self._api_server))
        api.set_default_header("Impersonate-User", user)
        metadata = {"name": "x-routing", "annotations": {"learnloop.dev/blocked-revision": "{}"}}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return self._posted(api, f"/api/v1/namespaces/{self._namespace}/configmaps", made)

    def _posted(self, api: client.ApiClient, path: str, made: dict[str, Any]) -> str:
        try:
            api.call_api(
                path,
                "POST",
                query_params=[("dryRun", "All")],
                body=made,
                auth_settings=["BearerToken"],
                header_params={"Content-Type": "application/json"},
                response_type="object",
            )
        except client.ApiException as error:
            return str(error.body)
        return ""


@pytest.fixture
def people(kube: Any, api_server: Path, namespace: str, policy: None) -> People:
    """`author` writes objects, `maker` may create pods as well."""
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"authors": "asked"}}}
    )
    grant(kube, namespace, "author", EVERYTHING)
    grant(kube, namespace, "maker", EVERYTHING, {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
    found = People(api_server, namespace)
    for _ in range(120):  # a policy is in force some seconds after it was written
        if "may be set by who may create pods" in found.refusal("author", "TrainingJob", {"image": "x"}):
            return found
        time.sleep(0.5)
    raise AssertionError("the policy never came into force: " + found.refusal("author", "TrainingJob", {"image": "x"}))


def test_every_field_of_a_pod_takes_the_right_to_create_pods(people: People) -> None:
    known = {field.alias or name for name, field in PodOptions.model_fields.items()}
    assert known == set(VALUES), "a new field of PodOptions: is it free?"
    for kind in ("TrainingJob", "ModelDeployment", "MemoryService"):
        for field, value in VALUES.items():
            said = people.refusal("author", kind, {field: value})
            assert (said == "") is (field in FREE), f"{kind} {field}: {said}"
            assert field in FREE or f"pod.{field}: may be set by who may create pods" in said
            assert not people.refusal("maker", kind, {field: value}), f"{kind} {field}"


def test_no_author_gets_the_nodes_files_or_a_token_of_the_api_server(people: People) -> None:
    for volumes in (HOST, TOKEN):
        assert "pod.volumes: a kind of volume" in people.refusal("maker", "TrainingJob", {"volumes": volumes})


def test_a_secret_is_named_by_who_may_get_it(people: People) -> None:
    ref = {"storage": None, "dsnSecretRef": {"name": "payroll", "key": "dsn"}}
    said = people.refusal("maker", "MemoryService", {}, **ref)
    assert "spec names Secret payroll: maker may not get it" in said


def test_a_suite_of_gates_takes_what_a_pod_takes(people: People) -> None:
    own = {"gates": {"suites": [{"name": "red-team", "image": "registry.example.com/mine:1"}]}}
    said = people.refusal("author", "ModelDeployment", {}, **own)
    assert "pod.image: may be set by who may create pods" in said
    assert not people.refusal("maker", "ModelDeployment", {}, **own)
    judge = {"url": "http://judge.ai.svc/v1", "model": "m", "apiKeySecretRef": {"name": "payroll"}}
    judged = {"gates": {"suites": [{"name": "toxicity", "builtin": "toxicity", "detector": judge}]}}
    assert "spec names Secret payroll" in people.refusal("maker", "ModelDeployment", {}, **judged)
    builtin = {"gates": {"suites": [{"name": "leak", "builtin": "leak"}]}}
    assert not people.refusal("author", "ModelDeployment", {}, **builtin)


def test_a_volume_with_an_embedders_files_takes_what_a_pods_volume_takes(people: People) -> None:
    claim = {"embedder": {"volume": {"claimName": "payroll"}}}
    said = people.refusal("author", "MemoryService", {}, **claim)
    assert "spec.embedder.volume: may be set by who may create pods" in said
    assert not people.refusal("maker", "MemoryService", {}, **claim)
    image = {"embedder": {"volume": {"image": "registry.example.com/model:1"}}}
    assert "spec.embedder.volume: a kind of volume" in people.refusal("maker", "MemoryService", {}, **image)
    server = {"embedder": {"url": "https://models.example.org/v1", "model": "small"}}
    assert not people.refusal("author", "MemoryService", {}, **server)


def test_objects_without_pod_options_are_taken_from_whoever_may_write_them(people: People) -> None:
    for kind in ("TrainingJob", "ModelDeployment", "MemoryService"):
        assert not people.refusal("author", kind, {})


def test_nobody_but_the_operator_says_that_an_arm_was_taken_back(kube: Any, namespace: str, people: People) -> None:
    operator = "system:serviceaccount:authors:learnloop-operator"
    for user in ("editor", operator):
        grant(
            kube,
            namespace,
            user.replace(":", "-"),
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        )
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": operator}
    kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": operator.replace(":", "-")},
            "subjects": [subject],
        }
    )
    assert "only learnloop's operator says which arm was taken back" in people.verdict("editor")
    assert not people.verdict(operator)
