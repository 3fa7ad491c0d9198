"""One run on each backend, on a real API server with the kinds' own definitions; their controllers are played."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from learnloop_api.wire.training import TrainingRun
from learnloop_operator.kube.fenced_client import KubeClient, covers
from learnloop_operator.kube.kinds import WORKLOAD, ResourceKind, kind_of
from learnloop_operator.reconcile.training_job import TrainingJobController
from learnloop_operator.training.backends import BACKENDS, MANAGER, candidates
from learnloop_operator.training.run_snapshot import RunRequest
from testing.operators.api_access import from_kubeconfig, patch
from testing.operators.controller_passes import Experience, Operator
from testing.training.training_builders import DEFAULTS, heartbeat, proof, spec

ROOT = Path(__file__).resolve().parents[3]
BY_NAME = {backend.name: backend for backend in BACKENDS}
AT = "2026-03-01T12:00:10Z"
ENDED = {"startTime": "2026-03-01T12:00:00Z", "ready": 0, "terminating": 0}
SAYS = "couldn't assign flavors to pod set main: insufficient unused quota for cpu, 2 more needed"
OPTIONS = {
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "nodeSelector": {"node": "spot"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "imagePullSecrets": [{"name": "registry"}],
}
WHOLE_PODS = {
    "priorityClassName": "low",
    "schedulerName": "volcano",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
}


def conditions(*types: str, reason: str) -> list[dict]:
    return [
        {"type": item, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": AT}
        for item in types
    ]


# As the controllers write them: see tests/unit/operator/training/backends/test_ends.py.
FAILED = {
    "pytorchjob": {"conditions": conditions("Failed", reason="PyTorchJobFailed"), "replicaStatuses": {}},
    "job": {**ENDED, "failed": 1, "conditions": conditions("FailureTarget", "Failed", reason="BackoffLimitExceeded")},
    "trainjob": {"conditions": conditions("Failed", reason="ReachedMaxRestarts")},
    "rayjob": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "exit code 1", "endTime": AT},
}
SUCCEEDED = {
    "pytorchjob": {"conditions": conditions("Succeeded", reason="PyTorchJobSucceeded"), "replicaStatuses": {}},
    "job": {
        **ENDED,
        "succeeded": 1,
        "completionTime": AT,
        "conditions": conditions("SuccessCriteriaMet", "Complete", reason="CompletionsReached"),
    },
    "trainjob": {"conditions": conditions("Complete", reason="AllJobsCompleted")},
    "rayjob": {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": AT},
}


class Plane(Experience):
    """A data plane that has what the ranks told it."""

    def __init__(self) -> None:
        super().__init__()
        self.report: TrainingRun | None = None

    async def run(self, namespace: str, job: str) -> TrainingRun | None:
        return self.report


class Written(Operator):
    """The operator, with a record of all that it wrote."""

    def __init__(self, path: Path, namespace: str, data: Plane) -> None:
        super().__init__(path, namespace, data)
        self.bodies = []
        request = self.kube.http.request

        async def noted(method: str, url: str, **more):
            if method != "GET":
                self.bodies.append((method, url, more.get("body")))
            return await request(method, url, **more)

        self.kube.http.request = noted
        self.training = TrainingJobController(self.services)


def keys(value) -> Iterator[str]:
    if isinstance(value, dict):
        yield from map(str, value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(item)


def training(name: str) -> dict:
    program = {"algorithm": "custom", "pod": {"image": "registry.example/own:1", "command": ["python", "/train.py"]}}
    return {
        **(program if name == "rayjob" else {"algorithm": "ppo"}),
        "totalSteps": 1000,
        "backend": name,
        "workers": 0 if name == "job" else 2,
        "queue": {"name": "team-a", "priorityClass": "high"},
        "data": {"environment": "CartPole-v1"},
    }


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("pod", [{}, OPTIONS, WHOLE_PODS], ids=["plain", "options", "whole pods"])
@pytest.mark.parametrize("name", BY_NAME)
def test_the_kinds_own_definition_takes_all_that_is_rendered(kube, namespace, name, pod):
    if name == "pytorchjob":  # the definition of v1.8 knows claims of devices by an older name
        pod = {key: value for key, value in pod.items() if key != "resourceClaims"}
    body = training(name)
    backend, wanted = BY_NAME[name], spec(**{**body, "pod": body.get("pod", {}) | pod})
    if backend.unfit(wanted, DEFAULTS):
        assert (name, pod) == ("trainjob", WHOLE_PODS), "the only one that cannot carry everything"
        return
    owner = {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob"}
    owner["metadata"] = {"name": "t", "namespace": namespace, "uid": "u-1"}
    request = RunRequest(job=owner, spec=wanted, attempt=0, agent="la", baseline_uri=None, baseline_sha256=None)
    manifest = backend.render(request, DEFAULTS)
    live = kube.apply(manifest, dry=True)
    assert covers(manifest["spec"], live["spec"]), "something was pruned or rewritten"


@pytest.mark.usefixtures("kinds")
def test_trainers_own_definition_takes_the_charts_runtime(kube) -> None:
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    chart = ["template", "learnloop", str(ROOT / "charts" / "learnloop"), "--set", "trainer.runtime.create=true"]
    shown = ["--show-only", "templates/operator/training-runtime.yaml"]
    rendered = subprocess.run([helm.stdout.strip(), *chart, *shown], capture_output=True, text=True, check=True)
    runtime = yaml.safe_load(rendered.stdout)
    live = kube.apply(runtime, dry=True)
    assert covers(runtime["spec"], live["spec"]), "something was pruned or rewritten"


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("name", BY_NAME)
async def test_a_run_waits_trains_is_preempted_fails_and_is_proven(api_server, namespace, name, monkeypatch):
    data = Plane()
    operator = Written(api_server, namespace, data)
    (backend,) = candidates(name)
    kind = kind_of({"apiVersion": backend.api_version, "kind": backend.kind})
    monkeypatch.setattr(operator.training, "_backends", type(operator.training._backends)(defaults=DEFAULTS))

    async def status() -> dict:
        return await operator.settle(operator.training, "t")

    async def hold(suspended: bool) -> None:
        change = {"suspend": suspended}
        body = {"spec": {"runPolicy": change} if name == "pytorchjob" else change}
        await patch(kueue, kind, namespace, "t", body)

    async def ended(status: dict) -> None:
        body, path = {"status": status}, kind.path(namespace, "t", "status")
        await kueue.http.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    kueue = KubeClient(from_kubeconfig(api_server))
    await operator.create("TrainingJob", "t", training(name))
    await operator.look(operator.training, "t")
    gang = await kueue.get(kind, namespace, "t")
    assert gang["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    await hold(suspended=True)
    await workload(kueue, namespace, gang["metadata"]["uid"])
    queued = await status()
    assert (queued["phase"], queued["attempts"], queued["backend"]) == ("Queued", 1, name)
    assert ready(queued)["message"] == SAYS

    await hold(suspended=False)
    assert ready(await status())["reason"] == "Admitted"
    data.report = TrainingRun(job="t", heartbeat=heartbeat(), heartbeat_age_seconds=0.0)
    assert (await status())["phase"] == "Training"
    await hold(suspended=True)
    assert (await status())["phase"] == "Queued", "rolled back"
    await hold(suspended=False)
    assert ready(await status())["reason"] == "Admitted"
    again = await status()
    assert (again["phase"], again["attempts"]) == ("Training", 1), "and no attempt of it"

    await ended(FAILED[name])
    second = {}
    for _ in range(10):
        await operator.look(operator.training, "t")
        second = await kueue.find(kind, namespace, "t") or {}
        if second and second["metadata"]["annotations"]["learnloop.dev/attempt"] == "1":
            break
    assert second["metadata"]["uid"] != gang["metadata"]["uid"], "a gang of its own for each attempt"
    wanted = spec(**training(name))
    made = {"algorithm": wanted.algorithm, "engine": wanted.trained_by}
    manifest = proof(attempts=2, artifact_uri=f"learnloop://{namespace}/{'a' * 64}", **made)
    data.report = TrainingRun(job="t", heartbeat=heartbeat(attempt=1), heartbeat_age_seconds=0.0, proof=manifest)
    await ended(SUCCEEDED[name])
    proven = await status()
    assert (proven["phase"], proven["attempts"]) == ("Validated", 2), ready(proven)["message"]
    assert_nothing_of_ours_suspends(operator, kind, gang, second)
    await kueue.close()
    await operator.kube.close()


def assert_nothing_of_ours_suspends(operator: Written, kind: ResourceKind, *gangs: dict) -> None:
    """No write of the operator has such a field, and none of its owners are ours."""
    written = [body for method, url, body in operator.bodies if f"/{kind.plural}/" in url and method != "DELETE"]
    assert written
    assert not [key for body in written for key in keys(body) if "suspend" in key.lower()]
    for gang in gangs:
        for entry in gang["metadata"]["managedFields"]:
            if entry["manager"].startswith("learnloop") or entry["manager"] == MANAGER:
                assert "f:suspend" not in set(keys(entry["fieldsV1"]))


async def workload(user: KubeClient, namespace: str, uid: str) -> None:
    """Kueue's Workload of a gang that has to wait."""
    pod = {"spec": {"containers": [{"name": "x", "image": "x"}], "restartPolicy": "Never"}}
    metadata = {"name": "of-t", "namespace": namespace, "labels": {"kueue.x-k8s.io/job-uid": uid}}
    body = {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": metadata,
        "spec": {"queueName": "team-a", "podSets": [{"name": "main", "count": 3, "template": pod}]},
    }
    await user.create(body)
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": SAYS, "lastTransitionTime": AT}
    path = WORKLOAD.path(namespace, "of-t", "status")
    change = {"status": {"conditions": [waits]}}
    await user.http.request("PATCH", path, body=change, content_type="application/merge-patch+json")


def ready(status: dict) -> dict:
    condition = next(item for item in status["conditions"] if item["type"] == "Ready")
    return condition
