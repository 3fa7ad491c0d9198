"""Flux's view of the health of our kinds: its expressions, evaluated by the API server's own CEL.

The order of the questions is that of Flux (RFC 0009, custom health checks): a stale generation, failed, current. What
cannot be evaluated, as in an object without a status, is waited for.
"""

import re
import time
from pathlib import Path

import pytest
import yaml

from learnloop_api.names import GROUP

ROOT = Path(__file__).resolve().parents[3]
HEALTH = ROOT / "charts" / "argocd" / "learnloop.dev"
KINDS = sorted(folder.name for folder in HEALTH.iterdir() if folder.is_dir())
FIELD = re.compile(r"(?<![\w.'])(status|spec|metadata)\b")
ACTIVE_SECONDS = 60.0
AS_ARGO = {"Healthy": {"Current"}, "Degraded": {"Failed"}, "Progressing": {"InProgress"}}
"""Suspended is nothing that Flux knows: what Git suspends is as it should be, what waits for a person is under way."""
EXCEPTIONS = {
    ("ModelDeployment", "rolled_back_suspended"): {"Failed"},
    ("LearningAgent", "deleted"): {"InProgress", "Current"},  # Flux asks nothing about what it has deleted
}
CARRIER = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "carriers.tests.learnloop.dev"},
    "spec": {
        "group": "tests.learnloop.dev",
        "scope": "Namespaced",
        "names": {"plural": "carriers", "singular": "carrier", "kind": "Carrier"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""A kind without a schema and without a subresource: an object comes with its status."""


def expressions() -> dict[str, dict[str, str]]:
    documents = yaml.safe_load_all((ROOT / "examples" / "flux" / "agents.yaml").read_text(encoding="utf-8"))
    kustomization = next(item for item in documents if "healthCheckExprs" in item.get("spec", {}))
    checks = kustomization["spec"]["healthCheckExprs"]
    assert {item["apiVersion"] for item in checks} == {f"{GROUP}/v1alpha1"}
    return {item["kind"]: {"failed": item["failed"], "current": item["current"]} for item in checks}


def test_every_kind_is_asked_about_in_the_same_words() -> None:
    assert sorted(expressions()) == KINDS
    assert len({str(item) for item in expressions().values()}) == 1


@pytest.fixture(scope="module")
def policy(kube) -> None:
    """The author of a carrier is refused, with the health of what it carries as the message."""
    failed, current = (FIELD.sub(r"object.\1", text) for text in expressions()[KINDS[0]].values())
    expression = f"({failed}) ? 'is Failed' : ({current}) ? 'is Current' : 'is InProgress'"
    kube.apply(CARRIER)
    carriers = {"apiGroups": ["tests.learnloop.dev"], "apiVersions": ["v1"], "resources": ["carriers"]}
    rules = [{**carriers, "operations": ["CREATE"]}]
    kube.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "health"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": "false", "messageExpression": expression}],
            },
        }
    )
    kube.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "health"},
            "spec": {"policyName": "health", "validationActions": ["Deny"]},
        }
    )


def refusal(kube, namespace: str, obj: dict) -> str:
    """The policy's answer; waits until it is in force."""
    carrier = {key: obj[key] for key in ("spec", "status") if key in obj}
    carrier |= {"apiVersion": "tests.learnloop.dev/v1", "kind": "Carrier"}
    carrier["metadata"] = {"name": "x", "namespace": namespace}
    end = time.monotonic() + ACTIVE_SECONDS
    while time.monotonic() < end:
        try:
            kube.create(carrier, dry=True)
        except kube.Refused as error:
            if "ValidatingAdmissionPolicy" in error.message:
                return str(error.message)
        time.sleep(0.2)
    raise AssertionError("the policy is still not in force")


def flux(kube, namespace: str, obj: dict) -> str:
    status = obj.get("status") or {}
    if "observedGeneration" in status and status["observedGeneration"] != obj["metadata"].get("generation"):
        return "InProgress"
    message = refusal(kube, namespace, obj)
    return next((health for health in ("Failed", "Current", "InProgress") if f"is {health}" in message), "InProgress")


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("kind", KINDS)
def test_flux_and_argo_cd_agree_on_every_case(kube, namespace: str, kind: str) -> None:
    for case in yaml.safe_load((HEALTH / kind / "health_test.yaml").read_text(encoding="utf-8"))["tests"]:
        obj = yaml.safe_load((HEALTH / kind / case["inputPath"]).read_text(encoding="utf-8"))
        name = Path(case["inputPath"]).stem
        wanted = AS_ARGO.get(case["healthStatus"]["status"], {"Current", "InProgress"})
        verdict = flux(kube, namespace, obj)
        assert verdict in EXCEPTIONS.get((kind, name), wanted), f"{name}: {verdict}"
