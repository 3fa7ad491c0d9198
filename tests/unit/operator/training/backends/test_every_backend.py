"""The common part of every backend: the pod, its owner, and that no queue is ever overruled."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from learnloop_api import names
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.training.backends import BACKENDS, Backends, candidates
from learnloop_operator.training.ranks import Backend
from learnloop_operator.training.run_snapshot import RunRequest
from testing.training.training_builders import DEFAULTS, DIGEST, resource, spec

OPTIONS = {
    "image": "registry.example/own:1",
    "imagePullSecrets": [{"name": "registry"}],
    "resources": {"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "gpu"}]},
    "env": [{"name": "EXTRA", "value": "1"}, {"name": "LEARNLOOP_DATA_URL", "value": "http://elsewhere"}],
    "nodeSelector": {"node": "spot"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "serviceAccountName": "trainer",
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "labels": {"team": "a", "learnloop.dev/training-job": "forged"},
    "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
}
ONLY_WHOLE_PODS = {
    "priorityClassName": "low",
    "schedulerName": "volcano",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
}
PROGRAM = {"image": "registry.example/own:1", "command": ["python", "/train.py"]}
each = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)


def order(backend: Backend, attempt: int = 1, **changes) -> RunRequest:
    wanted = {"workers": 0 if backend.name == "job" else 2, "backend": backend.name, **changes}
    if backend.name == "rayjob":
        wanted |= {"algorithm": "custom", "pod": PROGRAM | wanted.get("pod", {})}
    return RunRequest(
        job=resource(), spec=spec(**wanted), attempt=attempt, agent="la", baseline_uri=None, baseline_sha256=DIGEST
    )


def render(backend: Backend, **changes) -> dict:
    return dict(backend.render(order(backend, **changes), DEFAULTS))


def pods(backend: Backend, manifest: dict) -> list[dict]:
    """The ranks' pod templates; of a TrainJob: what it lays over its runtime's."""
    body = manifest["spec"]
    if backend.name == "pytorchjob":
        return [item["template"] for item in body["pytorchReplicaSpecs"].values()]
    if backend.name == "job":
        return [body["template"]]
    if backend.name == "rayjob":
        cluster = body["rayClusterSpec"]
        return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    (patch,) = body["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ran = {"image": body["trainer"]["image"], "env": body["trainer"]["env"]}
    ran |= {"resources": body["trainer"]["resourcesPerNode"]} if "resourcesPerNode" in body["trainer"] else {}
    return [{**template, "spec": {**template["spec"], "containers": [{**container, **ran}]}}]


def keys(value) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(item)


@each
def test_the_gang_is_the_training_jobs_own_and_says_its_attempt(backend: Backend) -> None:
    manifest = render(backend, attempt=3)
    assert (manifest["apiVersion"], manifest["kind"]) == (backend.api_version, backend.kind)
    assert manifest["metadata"]["name"] == "t"
    (reference,) = manifest["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("TrainingJob", "u-1", True)
    assert manifest["metadata"]["annotations"] == {"learnloop.dev/attempt": "3"}
    assert manifest["metadata"]["labels"]["learnloop.dev/training-job"] == "t"


@pytest.mark.parametrize("backend", [item for item in BACKENDS if item.name != "rayjob"], ids=lambda item: item.name)
def test_every_rank_is_labelled_and_holds_the_order_the_token_and_what_the_user_set(backend: Backend) -> None:
    for template in pods(backend, render(backend, pod=OPTIONS)):
        labels, pod = template["metadata"]["labels"], template["spec"]
        assert (labels[names.LABEL_TRAINING_JOB], labels[names.LABEL_AGENT], labels["team"]) == ("t", "la", "a")
        assert template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] == "rack"
        (container,) = pod["containers"]
        assert (container["name"], container["image"]) == (backend.container, "registry.example/own:1")
        env = {item["name"]: item for item in container["env"]}
        sent = json.loads(env["LEARNLOOP_TRAINING_SPEC"]["value"])
        assert (sent["job"], sent["attempt"], sent["spec"]["totalSteps"]) == ("t", 1, 1000)
        assert not {"pod", "queue", "suspend"} & set(sent["spec"])
        assert (env["EXTRA"]["value"], env["LEARNLOOP_DATA_URL"]["value"]) == ("1", DEFAULTS.data_url)
        resources = {"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "gpu"}]}
        assert container["resources"] == {**resources, "requests": {"cpu": "100m", "memory": "256Mi"}}
        assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
        assert {"data", "learnloop-token", "learnloop-tmp"} == {item["name"] for item in pod["volumes"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert (pod["nodeSelector"], pod["serviceAccountName"]) == ({"node": "spot"}, "trainer")
        assert (pod["tolerations"], pod["affinity"]) == (OPTIONS["tolerations"], OPTIONS["affinity"])
        assert pod["terminationGracePeriodSeconds"] == 30, "time to save a checkpoint"


@pytest.mark.parametrize("backend", [item for item in BACKENDS if item.name != "trainjob"], ids=lambda item: item.name)
def test_priority_topology_and_claimed_devices_reach_the_pods(backend: Backend) -> None:
    for template in pods(backend, render(backend, pod=ONLY_WHOLE_PODS)):
        assert {key: template["spec"][key] for key in ONLY_WHOLE_PODS} == ONLY_WHOLE_PODS


@pytest.mark.parametrize("option", ONLY_WHOLE_PODS)
def test_a_train_job_refuses_by_name_what_trainer_lets_no_patch_say(option: str) -> None:
    (backend,) = candidates("trainjob")
    refusal = backend.unfit(spec(pod={option: ONLY_WHOLE_PODS[option]}), DEFAULTS)
    assert f"spec.pod.{option}" in refusal
    assert "backend: pytorchjob" in refusal


@each
@pytest.mark.parametrize("queue", [None, {"name": "team-a", "priorityClass": "high"}], ids=["no queue", "a queue"])
def test_nothing_that_is_rendered_suspends_or_resumes(backend: Backend, queue) -> None:
    manifest = render(backend, queue=queue)
    assert not {key for key in keys(manifest) if "suspend" in key.lower()}, "that field is the queue's"
    labels = {key: value for key, value in manifest["metadata"]["labels"].items() if "kueue" in key}
    named = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "high"}
    assert labels == (named if queue else {})
    for template in pods(backend, manifest):
        assert not [key for key in template["metadata"]["labels"] if "kueue" in key], "pods are not jobs"


def test_ray_starts_the_program_on_a_cluster_whose_head_has_the_trainer_and_whose_workers_have_no_token():
    (backend,) = candidates("rayjob")
    body = render(backend, pod=OPTIONS)["spec"]
    head, worker = pods(backend, {"spec": body})
    assert [one["name"] for one in head["spec"]["containers"]] == ["engine", "trainer"], "Ray runs in the first"
    (only,) = worker["spec"]["containers"]
    assert (only["name"], only["image"], "command" in only) == ("ray-worker", "registry.example/own:1", False)
    assert "learnloop-token" not in {volume["name"] for volume in worker["spec"]["volumes"]}
    assert body["entrypoint"].startswith("/bin/sh -c 'cd /tmp")
    assert " sh python /train.py; code=$?; until" in body["entrypoint"]
    assert body["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 2
    assert body["shutdownAfterJobFinishes"], "Kueue takes no other"
    assert "set algorithm to custom" in backend.unfit(spec(), DEFAULTS)


def test_kuberay_reaches_the_head_of_a_closed_namespace():
    (backend,) = candidates("rayjob")
    policy, _ = Backends(defaults=replace(DEFAULTS, network=WorkloadNetwork())).render(backend, order(backend))
    assert [rule.get("ports") for rule in policy["spec"]["ingress"]] == [None, [{"port": 8265}]]


def test_ranks_of_a_train_job_find_the_first_one_by_its_host_name() -> None:
    (backend,) = candidates("trainjob")
    (template,) = pods(backend, render(backend))
    env = {item["name"]: item for item in template["spec"]["containers"][0]["env"]}
    assert (env["WORLD_SIZE"]["value"], env["MASTER_ADDR"]["value"]) == ("3", "t-node-0-0.t")
    assert "job-completion-index" in env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]


def test_a_train_job_names_the_charts_runtime_and_patches_it_under_a_manager_of_our_own() -> None:
    (backend,) = candidates("trainjob")
    body = render(backend)["spec"]
    assert body["runtimeRef"] == {"name": DEFAULTS.runtime}
    assert [item["manager"] for item in body["runtimePatches"]] == ["learnloop.dev/operator"]
    assert body["trainer"]["numNodes"] == 3


def test_a_job_runs_one_rank_and_says_so() -> None:
    (backend,) = candidates("job")
    assert "spec.workers is 2: set it to 0" in backend.unfit(spec(workers=2), DEFAULTS)
    assert backend.unfit(spec(workers=0), DEFAULTS) == ""
