"""Two gangs under a ResourceQuota of a real API server: each is made whole or not at all."""

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import JOB, POD, PYTORCH_JOB, RESOURCE_QUOTA
from learnloop_operator.reconcile.training_job import TrainingJobController
from testing.operators.api_access import from_kubeconfig
from testing.operators.controller_passes import Operator
from testing.operators.injecting_webhook import injecting
from testing.operators.training_kinds import install
from testing.training.training_builders import DEFAULTS

from .test_backends import Plane, ready

TRAINING = {
    "algorithm": "ppo",
    "totalSteps": 1000,
    "backend": "pytorchjob",
    "workers": 2,
    "data": {"environment": "CartPole-v1"},
}


class Gangs(Operator):
    """The operator, and the parts of a cluster that make pods and count them."""

    def __init__(self, path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path, namespace, Plane())
        self.training = TrainingJobController(self.services)
        monkeypatch.setattr(self.training, "_backends", type(self.training._backends)(defaults=DEFAULTS))

    async def quota(self, hard: dict[str, str]) -> None:
        metadata = {"name": "tight", "namespace": self.namespace}
        await self.kube.create(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        )
        # As kube-controller-manager says it first; from then on the API server counts what it admits.
        await self.status(RESOURCE_QUOTA, "tight", {"hard": hard, "used": dict.fromkeys(hard, "0")})
        await asyncio.sleep(1.0)

    async def used(self) -> dict[str, str]:
        found: dict[str, str] = (await self.kube.get(RESOURCE_QUOTA, self.namespace, "tight"))["status"]["used"]
        return found

    async def pods_of(self, job: str, count: int) -> int:
        """Made as a Job's controller makes them; how many the API server took."""
        gang = await self.kube.find(PYTORCH_JOB, self.namespace, job)
        if gang is None:
            return 0
        template = gang["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
        taken = 0
        for number in range(count):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template["metadata"], "name": f"{job}-{number}", "namespace": self.namespace},
                "spec": {**template["spec"], "restartPolicy": "Never", "serviceAccountName": "default"},
            }
            try:
                await self.kube.create(pod)
                taken += 1
            except KubeError as error:
                if "exceeded quota: tight" not in str(error):
                    raise
        return taken

    async def gone(self, job: str, count: int) -> None:
        for number in range(count):
            path = POD.path(self.namespace, f"{job}-{number}")
            await self.kube.http.request("DELETE", path, body={"gracePeriodSeconds": 0})
        left = len(await self.kube.list(POD, self.namespace))
        await self.status(RESOURCE_QUOTA, "tight", {"used": {"pods": str(left)}})
        await asyncio.sleep(1.0)


@pytest.fixture(scope="module")
def kinds(api_server: Path) -> None:
    async def installed() -> None:
        user = KubeClient(from_kubeconfig(api_server))
        await install(user)
        await user.close()

    asyncio.run(installed())


@pytest.mark.usefixtures("kinds")
async def test_the_second_gang_waits_for_room_says_so_and_goes_on_when_there_is_some(
    api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Gangs(api_server, namespace, monkeypatch)
    await operator.quota({"pods": "4"})
    for name in ("a", "b"):
        await operator.create("TrainingJob", name, TRAINING)
    # Both look before either has a pod: only one is promised the room.
    seen = [await operator.training.gather(namespace, name) for name in ("a", "b")]
    for snapshot in seen:
        assert snapshot is not None
        await operator.applier.apply(operator.training.kind, snapshot, operator.training.decide(snapshot))
    assert await operator.pods_of("a", 3) == 3
    assert await operator.kube.find(PYTORCH_JOB, namespace, "b") is None, "not even in part"
    waiting: dict[str, Any] = await operator.settle(operator.training, "b")
    assert (waiting["phase"], ready(waiting)["reason"]) == ("Queued", "NoRoom")
    assert "ResourceQuota tight" in ready(waiting)["message"]
    assert (await operator.settle(operator.training, "a"))["phase"] != "Queued"
    await operator.kube.delete(PYTORCH_JOB.ref(namespace, "a"))
    await operator.gone("a", 3)
    operator.shift += timedelta(seconds=70)
    await operator.look(operator.training, "b")
    assert await operator.pods_of("b", 3) == 3
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
async def test_a_run_whose_job_a_quota_has_no_room_for_waits_and_begins_once(
    api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Gangs(api_server, namespace, monkeypatch)
    await operator.quota({"count/jobs.batch": "1"})
    for name in ("a", "b"):
        await operator.create("TrainingJob", name, {**TRAINING, "backend": "job", "workers": 0})
        await operator.look(operator.training, name)
    waiting: dict[str, Any] = await operator.settle(operator.training, "b")
    assert (waiting["phase"], ready(waiting)["reason"]) == ("Queued", "NoRoom")
    assert "count/jobs.batch" in ready(waiting)["message"]
    assert await operator.kube.find(JOB, namespace, "b") is None
    await operator.kube.delete(JOB.ref(namespace, "a"))
    await operator.status(RESOURCE_QUOTA, "tight", {"used": {"count/jobs.batch": "0"}})
    await asyncio.sleep(1.0)
    operator.shift += timedelta(seconds=70)
    await operator.look(operator.training, "b")
    made = await operator.kube.get(JOB, namespace, "b")
    begun: dict[str, Any] = await operator.settle(operator.training, "b")
    assert (begun["attempts"], begun.get("queuedAt")) == (1, None)
    assert (await operator.kube.get(JOB, namespace, "b"))["metadata"]["uid"] == made["metadata"]["uid"]
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
async def test_a_gang_whose_room_a_stranger_takes_withdraws_as_a_whole(
    api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Gangs(api_server, namespace, monkeypatch)
    await operator.quota({"pods": "3"})
    await operator.create("TrainingJob", "a", TRAINING)
    await operator.look(operator.training, "a")
    stranger = {"containers": [{"name": "x", "image": "x"}]}
    metadata = {"name": "stranger", "namespace": namespace}
    await operator.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": stranger})
    assert await operator.pods_of("a", 3) == 2
    operator.shift = timedelta(seconds=10)
    for _ in range(4):
        await operator.look(operator.training, "a")
    assert await operator.kube.find(PYTORCH_JOB, namespace, "a") is None
    await operator.gone("a", 2)
    status = await operator.settle(operator.training, "a")
    assert (status["phase"], status["attempts"], ready(status)["reason"]) == ("Queued", 1, "NoRoom")
    assert "1 of 3 pods are used, and 3 pods ask for 3" in ready(status)["message"]
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
async def test_what_a_webhook_injects_takes_room_too_and_is_known_before_a_pod_is_made(
    api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator = Gangs(api_server, namespace, monkeypatch)
    await operator.quota({"requests.cpu": "1", "pods": "9"})
    sidecar = {"name": "mesh", "image": "x", "resources": {"requests": {"cpu": "300m"}}}
    async with injecting(operator.kube, namespace, sidecar, tmp_path) as asked:
        await in_force(operator, asked)
        asked.clear()
        await operator.create("TrainingJob", "a", TRAINING)
        waiting: dict[str, Any] = await operator.settle(operator.training, "a")
        assert (waiting["phase"], ready(waiting)["reason"]) == ("Queued", "NoRoom")
        assert "0 of 1 requests.cpu are used, and 3 pods ask for 1200m" in ready(waiting)["message"]
        assert asked == ["a- (dry run)"], "nothing was made to learn it, and once is enough"
        assert await operator.kube.find(PYTORCH_JOB, namespace, "a") is None
        await operator.create("TrainingJob", "b", {**TRAINING, "workers": 1})
        await operator.look(operator.training, "b")
        assert await operator.pods_of("b", 2) == 2
        assert (await operator.used())["requests.cpu"] == "800m"
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
async def test_a_rank_that_a_quota_would_not_take_waits_in_the_api_servers_own_words(
    api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator = Gangs(api_server, namespace, monkeypatch)
    await operator.quota({"limits.memory": "1Gi"})
    sidecar = {"name": "mesh", "image": "x"}
    limited = {**TRAINING, "pod": {"resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}}}
    async with injecting(operator.kube, namespace, sidecar, tmp_path) as asked:
        await in_force(operator, asked)
        await operator.create("TrainingJob", "a", limited)
        waiting = await operator.settle(operator.training, "a")
    assert ready(waiting)["reason"] == "NoRoom"
    assert "failed quota: tight: must specify limits.memory for: mesh" in ready(waiting)["message"]
    await operator.kube.close()


async def in_force(operator: Gangs, asked: list[str]) -> None:
    """A webhook is, some time after it was written."""
    for _ in range(100):
        with contextlib.suppress(KubeError):  # a quota may refuse what is asked here
            await operator.kube.admitted(pod_named("probe", operator.namespace))
        if asked:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the webhook was never asked")


def pod_named(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "x", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]},
    }
