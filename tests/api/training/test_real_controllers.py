"""Runs on the backends with the controllers that make their pods; kubelets and ranks are played."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_api.wire.training import TrainingRun
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import POD, TRAINING_JOB, kind_of
from learnloop_operator.reconcile.training_job import TrainingJobController
from learnloop_operator.training.backends import candidates
from learnloop_operator.training.ranks import ENV_SPEC
from testing.operators.api_access import from_kubeconfig, patch
from testing.operators.controller_passes import Experience, Operator
from testing.operators.training_controllers import training_controllers
from testing.servers.kube_api_server import api_server as an_api_server
from testing.training.training_builders import DEFAULTS, heartbeat, proof

ROOT = Path(__file__).resolve().parents[3]
BACKENDS = ("job", "trainjob")
SECONDS = 60.0
"""For a chain of controllers on a busy machine."""
MERGE = "application/merge-patch+json"


class Plane(Experience):
    """A data plane that has what the ranks told it."""

    def __init__(self) -> None:
        super().__init__()
        self.report: TrainingRun | None = None

    async def run(self, namespace: str, job: str) -> TrainingRun | None:
        return self.report


class Run:
    """One TrainingJob `t`, its operator, and the kubelet of its pods."""

    def __init__(self, path: Path, namespace: str, backend: str) -> None:
        self.data, self.namespace, self.backend = Plane(), namespace, backend
        self.operator = Operator(path, namespace, self.data)
        self.operator.training = TrainingJobController(self.operator.services)
        self.training = self.operator.training
        self.training._backends = type(self.training._backends)(defaults=DEFAULTS)
        (candidate,) = candidates(backend)
        self.kind = kind_of({"apiVersion": candidate.api_version, "kind": candidate.kind})
        self.container, self.kube = candidate.container, self.operator.kube
        self.ranks = 1 if backend == "job" else 3

    async def create(self, **more) -> None:
        spec = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}}
        # Where the API server ignores service accounts, a pod with a token has to name one.
        spec["pod"] = {"serviceAccountName": "default"}
        await self.operator.create(
            "TrainingJob", "t", {**spec, "backend": self.backend, "workers": self.ranks - 1, **more}
        )

    async def status(self) -> dict:
        await self.operator.look(self.training, "t")
        status = (await self.kube.get(TRAINING_JOB, self.namespace, "t")).get("status") or {}
        return status

    async def until(self, what: str, condition: Callable[[dict], Awaitable[bool]]) -> dict:
        """The operator looks again and again; the first status at which `condition` holds."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = await self.status()
            if await condition(status):
                return status
            gang = await self.kube.find(self.kind, self.namespace, "t") or {}
            assert time.monotonic() < deadline, f"no {what}: {status}, {gang.get('status')}, {await self.pods()}"
            await asyncio.sleep(0.1)

    async def gang(self) -> dict:
        manifest = await self.kube.get(self.kind, self.namespace, "t")
        return manifest

    async def pods(self) -> list[dict]:
        """That are not on their way out."""
        listed = await self.kube.list(POD, self.namespace, labels=f"{names.LABEL_TRAINING_JOB}=t")
        return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]

    async def all_pods_of(self, attempt: int) -> list[dict]:
        """Every rank of this attempt, and nothing of another one."""

        async def there(_: dict) -> bool:
            pods = await self.pods()
            return len(pods) == self.ranks and {order(pod)["attempt"] for pod in pods} == {attempt}

        await self.until(f"{self.ranks} pods of attempt {attempt}", there)
        return sorted(await self.pods(), key=lambda pod: str(pod["metadata"]["name"]))

    async def no_pods(self) -> None:
        async def gone(_: dict) -> bool:
            return not await self.pods()

        await self.until("end of the pods", gone)

    async def play(self, pod: dict, phase: str, code: int | None = None, **more) -> None:
        """The pod's status by its kubelet."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"running": {"startedAt": now}}
        if code is not None:
            ended = {"exitCode": code, "startedAt": now, "finishedAt": now}
            state = {"terminated": {**ended, "reason": "Completed" if code == 0 else "Error"}}
        container = {"name": self.container, "state": state, "ready": code is None, "restartCount": 0}
        container |= {"image": "i", "imageID": "i", "started": code is None}
        path = POD.path(self.namespace, pod["metadata"]["name"], "status")
        body = {"status": {"phase": phase, "containerStatuses": [container], **more}}
        await self.kube.http.request("PATCH", path, body=body, content_type=MERGE)

    async def train(self, attempt: int) -> list[dict]:
        """Every rank runs and the first one reports."""
        pods = await self.all_pods_of(attempt)
        for pod in pods:
            await self.play(pod, "Running")
        self.data.report = TrainingRun(job="t", heartbeat=heartbeat(attempt=attempt), heartbeat_age_seconds=0.0)

        async def training(status: dict) -> bool:
            return status.get("phase") == "Training"

        await self.until("training", training)
        return pods


def order(pod: dict):
    """The variables of the trainer in this pod."""
    (container,) = pod["spec"]["containers"]
    return json.loads(next(item["value"] for item in container["env"] if item["name"] == ENV_SPEC))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An API server of their own: these controllers would look at the objects of all tests."""
    with an_api_server() as path, training_controllers(path, tmp_path_factory.mktemp("controllers")):
        runtime(path)
        yield path


def runtime(path: Path) -> None:
    """The chart's ClusterTrainingRuntime, which Trainer's webhook takes."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    chart = ["template", "learnloop", str(ROOT / "charts" / "learnloop"), "--set", "trainer.runtime.create=true"]
    shown = ["--show-only", "templates/operator/training-runtime.yaml"]
    rendered = subprocess.run([helm.stdout.strip(), *chart, *shown], capture_output=True, text=True, check=True)
    manifest = yaml.safe_load(rendered.stdout)
    manifest["metadata"]["name"] = DEFAULTS.runtime

    async def created() -> None:
        user = KubeClient(from_kubeconfig(path))
        await user.http.request("POST", "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes", body=manifest)
        await user.close()

    asyncio.run(created())


@pytest.fixture(params=BACKENDS)
async def run(server: Path, request: pytest.FixtureRequest):
    namespace = f"{request.param}-{uuid.uuid4().hex[:8]}"
    made = Run(server, namespace, request.param)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await made.kube.http.request("POST", "/api/v1/namespaces", body=body)
    yield made
    await made.kube.close()


async def test_ranks_are_made_as_ordered_and_a_good_end_with_a_proof_is_validated(run: Run) -> None:
    await run.create()
    pods = await run.all_pods_of(0)
    gang = await run.gang()
    for pod in pods:
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert (container["name"], spec["restartPolicy"]) == (run.container, "Never")
        assert container["image"] == DEFAULTS.image
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is False
    if run.backend != "job":
        environments = [{item["name"]: item for item in pod["spec"]["containers"][0]["env"]} for pod in pods]
        assert {one["WORLD_SIZE"]["value"] for one in environments} == {"3"}
        assert len({pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods}) == 3
        first = next(
            pod for pod in pods if pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
        )
        host = f"{first['spec']['hostname']}.{first['spec']['subdomain']}"
        assert {one["MASTER_ADDR"]["value"] for one in environments} == {host}, "by which name the ranks meet"
    await run.train(0)

    reported_proof = proof(attempts=1, artifact_uri=f"learnloop://{run.namespace}/{'a' * 64}")
    run.data.report = TrainingRun(job="t", heartbeat=heartbeat(), heartbeat_age_seconds=0.0, proof=reported_proof)
    for pod in pods:
        await run.play(pod, "Succeeded", 0)

    async def validated(status: dict) -> bool:
        return status.get("phase") == "Validated"

    status = await run.until("validated model", validated)
    assert (status["attempts"], status["backend"]) == (1, run.backend)
    assert (await run.gang())["metadata"]["uid"] == gang["metadata"]["uid"]


async def test_a_run_past_its_deadline_ends_with_its_pods(run: Run) -> None:
    await run.create(deadlineSeconds=600)
    await run.train(0)
    run.operator.shift += timedelta(seconds=700)

    async def failed(status: dict) -> bool:
        return status.get("phase") == "Failed"

    status = await run.until("end", failed)
    assert "deadlineSeconds: 600" in json.dumps(status["conditions"])
    await run.no_pods()


async def test_whoever_suspends_the_gang_ends_its_pods_and_costs_no_attempt(run: Run) -> None:
    await run.create()
    await run.train(0)

    async def hold(suspended: bool) -> None:
        await patch(run.kube, run.kind, run.namespace, "t", {"spec": {"suspend": suspended}})

    await hold(suspended=True)
    await run.no_pods()
    assert (await run.status())["phase"] == "Queued"
    await hold(suspended=False)
    await run.train(0)
    status = await run.status()
    assert (status["phase"], status["attempts"]) == ("Training", 1)


async def test_a_suspended_run_has_no_gang_and_goes_on_when_resumed(run: Run) -> None:
    await run.create()
    await run.train(0)

    async def ask(suspended: bool) -> None:
        await patch(run.kube, TRAINING_JOB, run.namespace, "t", {"spec": {"suspend": suspended}})

    await ask(suspended=True)
    await run.no_pods()
    assert await run.kube.find(run.kind, run.namespace, "t") is None
    await ask(suspended=False)

    async def all_there(_: dict) -> bool:
        return len(await run.pods()) == run.ranks

    status = await run.until("pods again", all_there)
    assert status["attempts"] == 1
