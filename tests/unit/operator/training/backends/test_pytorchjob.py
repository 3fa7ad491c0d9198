"""The PyTorchJob we render is the one that Kubeflow's own models describe."""

import json

import kubeflow.training.models as models
import kubernetes.client.models as core
import pytest
from kubeflow.training import KubeflowOrgV1PyTorchJob
from kubernetes.client import ApiClient

from learnloop_operator.kube.fenced_client import covers
from learnloop_operator.training.backends import PYTORCH_JOB
from learnloop_operator.training.run_snapshot import RunRequest
from testing.training.training_builders import DEFAULTS, DIGEST, resource, spec

OPTIONS = {
    "image": "registry.example/own:1",
    "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "2"}},
    "env": [{"name": "EXTRA", "value": "1"}, {"name": "LEARNLOOP_DATA_URL", "value": "http://elsewhere"}],
    "nodeSelector": {"gpu": "h200"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "low",
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "labels": {"team": "a", "learnloop.dev/training-job": "forged"},
}


def render(attempt: int = 0, **changes) -> dict:
    request = RunRequest(
        job=resource(),
        spec=spec(backend="pytorchjob", **changes),
        attempt=attempt,
        agent="la",
        baseline_uri=f"learnloop://ns/{DIGEST}",
        baseline_sha256=DIGEST,
    )
    return dict(PYTORCH_JOB.render(request, DEFAULTS))


class _Answer:
    def __init__(self, body) -> None:
        self.data = json.dumps(body)


OWN = {"environment": "worlds:Warehouse", "environmentConfigMap": {"name": "my-worlds"}}


@pytest.mark.parametrize("changes", [{}, {"workers": 0}, {"pod": OPTIONS}, {"data": OWN}])
def test_kubeflows_models_read_every_field_back(changes: dict) -> None:
    manifest = render(**changes)
    client = ApiClient()
    for name in dir(models):
        if name.startswith("KubeflowOrg"):
            setattr(core, name, getattr(models, name))
    job = client.deserialize(_Answer(manifest), "KubeflowOrgV1PyTorchJob")
    assert isinstance(job, KubeflowOrgV1PyTorchJob)
    assert covers(manifest, client.sanitize_for_serialization(job)), "a field is unknown to the models"


def test_an_environment_in_a_config_map_is_mounted_read_only_into_every_rank_and_nowhere_else() -> None:
    replicas = render(data=OWN)["spec"]["pytorchReplicaSpecs"]
    for role in ("Master", "Worker"):
        pod = replicas[role]["template"]["spec"]
        container, (volume,) = pod["containers"][0], [item for item in pod["volumes"] if "configMap" in item]
        assert volume["configMap"] == {"name": "my-worlds"}
        (mount,) = [item for item in container["volumeMounts"] if item["name"] == volume["name"]]
        assert mount["readOnly"]
        env = {item["name"]: item.get("value") for item in container["env"]}
        assert env["LEARNLOOP_ENVIRONMENT_DIRECTORY"] == mount["mountPath"]
        assert not pod["automountServiceAccountToken"], "the code gets no right at the API server"
    plain = json.dumps(render())
    assert '"configMap": {"name": "my-worlds"' not in plain
    assert "LEARNLOOP_ENVIRONMENT_DIRECTORY" not in plain


def test_what_the_user_sets_on_pods_reaches_them_and_cannot_forge_what_is_ours() -> None:
    template = render(pod=OPTIONS)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert container["image"] == "registry.example/own:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["nodeSelector"] == {"gpu": "h200"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["priorityClassName"] == "low"
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["EXTRA"] == "1"
    assert env["LEARNLOOP_DATA_URL"] != "http://elsewhere"
    assert (
        template["metadata"]["labels"] | {"team": "a", "learnloop.dev/training-job": "t"}
        == (template["metadata"]["labels"])
    )


def test_the_order_to_the_trainer_is_one_json_object_without_pod_options() -> None:
    container = render(attempt=3, pod=OPTIONS)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"][
        "containers"
    ][0]
    order = json.loads(next(item["value"] for item in container["env"] if item["name"] == "LEARNLOOP_TRAINING_SPEC"))
    assert (order["job"], order["agent"], order["attempt"]) == ("t", "la", 3)
    assert order["spec"]["totalSteps"] == 1000
    assert "pod" not in order["spec"]
    assert order["baselineSha256"] == DIGEST
