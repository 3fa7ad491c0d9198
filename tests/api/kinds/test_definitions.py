"""The definitions themselves: accepted whole, explained, with columns, scale and selectors."""

import json
import time
from pathlib import Path

import pytest
import yaml

from learnloop_operator.core.conditions import brief

HERE = Path(__file__).parent
GOOD = {item["kind"]: item for item in yaml.safe_load_all((HERE / "objects.yaml").read_text())}
DEFINITIONS = {
    item["metadata"]["name"]: item
    for item in (
        yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted((HERE.parents[2] / "crds").glob("*.yaml"))
    )
}
OPENAPI_SECONDS = 120.0


def placed(kind: str, namespace: str) -> dict:
    """The good object of the kind in that namespace."""
    return {**GOOD[kind], "metadata": {**GOOD[kind]["metadata"], "namespace": namespace}}


def explained(kubectl, field: str) -> str:
    """The output of `kubectl explain`; the API server publishes schemas a moment after it establishes them."""
    deadline = time.monotonic() + OPENAPI_SECONDS
    while True:
        try:
            return str(kubectl("explain", field))
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_established_and_structural(name: str, kube) -> None:
    conditions = {item["type"]: item["status"] for item in kube.get(DEFINITIONS[name])["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_applying_the_definitions_again_changes_nothing(kube) -> None:
    before = {name: kube.get(item)["metadata"]["generation"] for name, item in DEFINITIONS.items()}
    for item in DEFINITIONS.values():
        kube.apply(item)
    assert {name: kube.get(item)["metadata"]["generation"] for name, item in DEFINITIONS.items()} == before


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("la", "keeps one agent's loop turning"),
        ("tjob.spec.hyperparameters.gaeLambda", "generalised advantage estimation"),
        ("rp.spec.components.type", "1 when the task was completed"),
        ("mdep.spec.rollout.steps", "One step up."),
        ("mdep.status.blockedRevision", "kubectl learnloop retry"),
        ("memsvc.spec.dsnSecretRef", "vector extension"),
    ],
)
def test_kubectl_explains_a_field(field: str, sentence: str, kubectl) -> None:
    assert sentence in " ".join(explained(kubectl, field).split())


def test_one_get_shows_the_loop_in_lines_of_120_characters(kube, kubectl, namespace: str) -> None:
    sentence = "minReturn: mean return 500.0, must be at least 400 (100 episodes)"
    shown = {
        "LearningAgent": {"rewarded": 123_456, "recentReturn": -450.86},
        "TrainingJob": {"phase": "Evaluating", "progress": "100%", "return": "187.2 [181.0, 192.1]"},
        "RewardPolicy": {"phase": "Published", "revision": "c1fbbb50d286", "agents": 12},
        "ModelDeployment": {"phase": "Progressing", "weight": 10}
        | {arm: {"revision": "3f9a2c81", "uri": "uniform://discrete/2"} for arm in ("stable", "canary")},
        "MemoryService": {"phase": "Ready", "readyReplicas": 2},
    }
    for kind, status in shown.items():
        item = {**GOOD[kind], "metadata": {"name": "cartpole-1", "namespace": namespace}}
        kube.apply(item)
        ends = {"conditions": [ready(sentence)]}
        whole = {"phase": "Collecting"} | status | ends | {"brief": brief(ends)}
        kube.apply({**named(item), "status": whole}, subresource="status")
    lines = kubectl("get", "la,tjob,mdep,rp,memsvc", "-n", namespace).splitlines()
    assert max(map(len, lines)) <= 120, lines
    for cell in ("123456", "187.2 [181.0, 192.1]", "minReturn: mean return 500.0,…", "3f9a2c81", "c1fbbb50d286"):
        assert cell in "\n".join(lines)
    assert sentence in kubectl("get", "tjob", "-n", namespace, "-o", "wide")


def test_the_category_finds_every_kind(kube, kubectl, namespace: str) -> None:
    for kind in GOOD:
        kube.apply(placed(kind, namespace))
    objects = kubectl("get", "learnloop", "-n", namespace, "-o", "name").split()
    assert len(objects) == len(GOOD)


@pytest.mark.parametrize(
    ("kind", "path"), [("ModelDeployment", ("serving", "replicas")), ("MemoryService", ("replicas",))]
)
def test_the_scale_subresource_sets_and_tells_replicas(kind, path, kube, kubectl, namespace):
    item = kube.apply(placed(kind, namespace))
    kube.apply({**named(item), "status": {"replicas": 2, "selector": "app=walker"}}, subresource="status")
    kubectl("scale", kind.lower(), item["metadata"]["name"], "--replicas=3", "-n", namespace)
    value = kube.get(item)["spec"]
    for key in path:
        value = value[key]
    scale = kube.get(item, subresource="scale")
    assert value == 3
    assert (scale["spec"]["replicas"], scale["status"]) == (3, {"replicas": 2, "selector": "app=walker"})


def test_objects_are_found_by_field(kube, kubectl, namespace: str) -> None:
    kube.apply(placed("TrainingJob", namespace))
    select = ("get", "tjob", "-n", namespace, "-o", "json", "--field-selector")
    objects = json.loads(kubectl(*select, "spec.data.learningAgentRef.name=walker"))["items"]
    assert [item["metadata"]["name"] for item in objects] == ["walker-1"]
    assert json.loads(kubectl(*select, "spec.algorithm=ppo"))["items"] == []


def named(item: dict) -> dict:
    """Only what addresses the object."""
    metadata = {key: item["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}


def ready(message: str) -> dict:
    """A condition Ready that is not yet true."""
    time_ = "2026-01-31T12:00:00Z"
    return {"type": "Ready", "status": "False", "reason": "Training", "message": message, "lastTransitionTime": time_}
