"""Only the controller of an owner gives a pod its controller, and only the operator writes routing tables."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import config

from .test_authors import grant, in_force, refusal

OPERATOR = "system:serviceaccount:authors:learnloop-operator"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
RIGHTS = {
    "apiGroups": ["", "apps", "batch", "learnloop.dev"],
    "resources": ["pods", "configmaps", "deployments", "replicasets", "jobs", "modeldeployments", "trainingjobs"],
    "verbs": ["create", "update", "patch", "get"],
}
"""As `edit` has them."""
LABELS, DEPLOYMENT, RUN = {"app": "mine"}, "learnloop.dev/model-deployment", "learnloop.dev/training-job"


@pytest.fixture(scope="module")
def policy(kube) -> Iterator[None]:
    with in_force(kube, "templates/authors/owner-references.yaml", "owned"):
        yield


def owner(kind: str, name: str, version: str) -> dict:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": str(uuid.uuid4()), "controller": True}


def pod(labels: dict[str, str] | None = None, *owners: dict) -> dict:
    metadata = {"name": f"x-{uuid.uuid4().hex[:8]}", "labels": labels or {}, "ownerReferences": list(owners)}
    return {"metadata": metadata, "spec": {"containers": [{"name": "x", "image": "x"}]}}


def workload(kind: str, labels: dict[str, str], *owners: dict) -> dict:
    made = pod(LABELS, *owners)
    template = {"metadata": {"labels": {**LABELS, **labels}}, "spec": made["spec"]}
    spec = {"template": template}
    if kind == "Job":
        template["spec"] = {**template["spec"], "restartPolicy": "Never"}
    else:
        spec["selector"] = {"matchLabels": LABELS}
    return {"metadata": made["metadata"], "spec": spec}


class Writer:
    """Writes as a dry run, or for good, as another user."""

    def __init__(self, api_server: Path, namespace: str) -> None:
        self._api_server, self._namespace = api_server, namespace

    def refusal(self, user: str, path: str, made: dict, *, patch: str = "", dry: bool = True) -> str:
        api = config.new_client_from_config(str(self._api_server))
        if user:
            api.set_default_header("Impersonate-User", user)
        if user.startswith("system:serviceaccount:kube-system"):
            api.set_default_header("Impersonate-Group", "system:serviceaccounts:kube-system")
        group, _, plural = path.rpartition("/")
        root = f"/apis/{group}" if group != "v1" else "/api/v1"
        url = f"{root}/namespaces/{self._namespace}/{plural}{'/' + patch if patch else ''}"
        return refusal(api, "PATCH" if patch else "POST", url, made, dry=dry)


def table(**data: str) -> dict:
    return {"metadata": {"name": "m-routing"}, "data": data}


@pytest.fixture
def writer(kube, api_server: Path, namespace: str, policy: None) -> Writer:
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"owned": "asked"}}})
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})
    grant(kube, namespace, "tenant", RIGHTS)
    finalizers = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs/finalizers"], "verbs": ["update"]}
    grant(kube, namespace, "training-operator", RIGHTS, finalizers)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": "others"},
            "roleRef": role,
            "subjects": [{**subject, "name": OPERATOR}, {**subject, "name": CONTROLLER}],
        }
    )
    made = Writer(api_server, namespace)
    for _ in range(40):  # a policy is in force some seconds after it was written
        if "only learnloop's operator writes" in made.refusal(
            "tenant", "v1/configmaps", table(**{"routing.json": "{}"})
        ):
            return made
        time.sleep(0.5)
    raise AssertionError(made.refusal("tenant", "v1/configmaps", table(**{"routing.json": "{}"})) or "accepted")


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("PyTorchJob", "kubeflow.org/v1"),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
        ("JobSet", "jobset.x-k8s.io/v1alpha2"),
        ("Job", "batch/v1"),
        ("ReplicaSet", "apps/v1"),
        ("RayCluster", "ray.io/v1"),
    ],
)
def test_a_pods_author_does_not_say_which_gang_or_suite_it_is_of(writer: Writer, kind: str, version: str) -> None:
    forged = pod(None, owner(kind, "run", version))
    assert f"only the controller of {kind} run writes it" in writer.refusal("tenant", "v1/pods", forged)
    assert not writer.refusal("tenant", "v1/pods", pod())
    assert not writer.refusal("tenant", "v1/pods", pod(None, owner("Cat", "c", "example.com/v1")))
    assert not writer.refusal(CONTROLLER, "v1/pods", forged)


def test_the_controller_of_a_gang_makes_its_pods(writer: Writer) -> None:
    made = pod({RUN: "run"}, owner("PyTorchJob", "run", "kubeflow.org/v1"))
    assert not writer.refusal("training-operator", "v1/pods", made)
    assert "only the controller of Job" in writer.refusal(
        "training-operator", "v1/pods", pod(None, owner("Job", "j", "batch/v1"))
    )


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("batch/v1/jobs", workload("Job", {}, owner("ModelDeployment", "m", "learnloop.dev/v1alpha1"))),
        ("batch/v1/jobs", workload("Job", {}, owner("TrainingJob", "m", "learnloop.dev/v1alpha1"))),
        ("apps/v1/deployments", workload("Deployment", {}, owner("ModelDeployment", "m", "learnloop.dev/v1alpha1"))),
        ("apps/v1/replicasets", workload("ReplicaSet", {}, owner("Deployment", "m-0badc0de", "apps/v1"))),
    ],
)
def test_no_author_has_an_arm_a_suite_or_a_gang_made_in_an_owners_name(writer, path, made):
    assert "metadata.ownerReferences: only the controller of" in writer.refusal("tenant", path, made)
    del made["metadata"]["ownerReferences"]
    assert not writer.refusal("tenant", path, made)


def test_no_strangers_pod_looks_like_an_arms_or_a_runs(writer: Writer) -> None:
    for label in (DEPLOYMENT, RUN):
        assert f"metadata.labels[{label}]: only learnloop labels" in writer.refusal(
            "tenant", "v1/pods", pod({label: "m"})
        )
    for path, kind in (
        ("apps/v1/deployments", "Deployment"),
        ("apps/v1/replicasets", "ReplicaSet"),
        ("batch/v1/jobs", "Job"),
    ):
        message = writer.refusal("tenant", path, workload(kind, {DEPLOYMENT: "m"}))
        assert "only learnloop labels the pods of ModelDeployment m" in message
    for label in ("batch.kubernetes.io/controller-uid", "training.kubeflow.org/job-name"):
        assert "only a controller sets it" in writer.refusal("tenant", "v1/pods", pod({label: "x"})), (
            "it is adopted by it"
        )
        assert not writer.refusal("tenant", "v1/pods", pod({label: "x"}, owner("Cat", "c", "example.com/v1")))
    own = pod({"app": "mine"})
    assert not writer.refusal("tenant", "v1/pods", own, dry=False)
    name = own["metadata"]["name"]
    labelled = {"metadata": {"labels": {DEPLOYMENT: "m"}}}
    owned = {"metadata": {"ownerReferences": [owner("Job", "j", "batch/v1")]}}
    assert "only learnloop labels" in writer.refusal("tenant", "v1/pods", labelled, patch=name)
    assert "only the controller of Job" in writer.refusal("tenant", "v1/pods", owned, patch=name)
    assert not writer.refusal("tenant", "v1/pods", {"metadata": {"labels": {"x": "y"}}}, patch=name)


def test_nobody_but_the_operator_writes_a_routing_table(writer: Writer) -> None:
    assert not writer.refusal("", "v1/configmaps", table(**{"other": "x"}), dry=False), "an administrator"
    forged = {"data": {"routing.json": '{"arms": [{"url": "http://collector.evil.svc"}]}'}}
    assert "only learnloop's operator writes a routing" in writer.refusal(
        "tenant", "v1/configmaps", forged, patch="m-routing"
    )
    verdict = {"metadata": {"annotations": {"learnloop.dev/blocked-revision": "{}"}}}
    message = writer.refusal("tenant", "v1/configmaps", verdict, patch="m-routing")
    assert "only learnloop's operator says which arm was rolled back" in message
    assert not writer.refusal("tenant", "v1/configmaps", {"data": {"other": "y"}}, patch="m-routing")
    assert not writer.refusal(OPERATOR, "v1/configmaps", forged, patch="m-routing", dry=False)
    assert not writer.refusal("tenant", "v1/configmaps", {"data": {"other": "z"}}, patch="m-routing")
