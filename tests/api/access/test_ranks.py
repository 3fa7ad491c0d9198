"""Ranks before a real API server: tokens that it bound to their pods, and what became of these."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from learnloop_api import names

from .test_callers import SPEC, data_plane, dsn, installed

__all__ = ["dsn", "installed"]
BODY = b"weights"


@pytest.fixture
async def client(
    installed: None, api_server: Path, kubectl, dsn: str, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    async with data_plane(api_server, kubectl, dsn, tmp_path) as http:
        yield http


class Gang:
    """TrainingJob, Job and pod of one name, as the operator and the Job's controller make them."""

    def __init__(self, kube, kubectl, namespace: str, name: str) -> None:
        self._kube, self._kubectl, self.namespace, self.name = kube, kubectl, namespace, name
        metadata = {"name": name, "namespace": namespace}
        self.job = {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": SPEC}
        container = {"name": "trainer", "image": "none"}
        self._pod = {"containers": [container], "serviceAccountName": "default", "restartPolicy": "Never"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        account["metadata"]["namespace"] = namespace
        kube.apply(account)

    def make(self) -> None:
        """All three."""
        self._kube.create(self.job)
        self._owned("batch/v1", "Job", self._kube.get(self.job), {"template": {"spec": self._pod}})
        self.make_pod()

    def make_pod(self) -> None:
        self._owned("v1", "Pod", self._kube.get(self._named("batch/v1", "Job")), self._pod)

    def delete(self, *kinds: str) -> None:
        versions = {"Pod": "v1", "Job": "batch/v1", "TrainingJob": str(self.job["apiVersion"])}
        for kind in kinds:
            path = self._kube.path(self._named(versions[kind], kind))
            self._kube.call("DELETE", path, {"gracePeriodSeconds": "0", "propagationPolicy": "Background"})

    def token(self, audience: str = names.RUN_AUDIENCE, *, bound: bool = True) -> dict[str, str]:
        """The token that the kubelet would mount into the pod."""
        uid = self._kube.get(self._named("v1", "Pod"))["metadata"]["uid"]
        pod = ["--bound-object-kind=Pod", f"--bound-object-name={self.name}", f"--bound-object-uid={uid}"]
        words = ["create", "token", "default", "-n", self.namespace, f"--audience={audience}", *(pod if bound else [])]
        return {"Authorization": f"Bearer {self._kubectl(*words).strip()}"}

    def _named(self, version: str, kind: str) -> dict:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": self.name, "namespace": self.namespace}}

    def _owned(self, version: str, kind: str, owner, spec: dict) -> None:
        made = self._named(version, kind)
        reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"controller": True}
        made["metadata"]["ownerReferences"] = [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]
        self._kube.create({**made, "spec": spec})


async def beat(client: httpx.AsyncClient, job: str, token: dict[str, str]) -> int:
    body = {"job": job, "attempt": 0, "phase": "training", "step": 1, "total_steps": 9, "world_size": 1}
    more = {"steps_per_second": 1.0, "at": "2026-01-31T12:00:00Z"}
    return (await client.put(f"/api/v1/training/runs/{job}/heartbeat", json=body | more, headers=token)).status_code


async def save(client: httpx.AsyncClient, job: str, token: dict[str, str]) -> int:
    headers = {**token, "x-learnloop-sha256": sha256(BODY).hexdigest(), "x-learnloop-step": "1"}
    path = f"/api/v1/training/runs/{job}/checkpoint"
    return (await client.put(path, content=BODY, headers=headers)).status_code


async def test_a_rank_reports_its_own_run_and_its_token_opens_nothing_else(client, kube, kubectl, namespace):
    own, other = Gang(kube, kubectl, namespace, "own"), Gang(kube, kubectl, namespace, "other")
    own.make()
    other.make()
    token = own.token()
    assert (await beat(client, "own", token), await save(client, "own", token)) == (200, 200)
    assert (await beat(client, "other", token), await save(client, "other", token)) == (403, 403)
    assert await beat(client, "own", own.token(bound=False)) == 403, "an account's token differs from a pod's"
    assert await beat(client, "own", own.token("elsewhere")) == 401
    assert await beat(client, "own", own.token(names.TOKEN_AUDIENCE)) == 200, "a pod from before the audience"
    memory = {"agent_id": "a", "memory_type": "semantic", "content": {"text": "planted"}}
    assert (await client.post("/api/v1/memory/store", json=memory, headers=token)).status_code == 403
    assert (await client.get("/api/v1/audit/records", headers=token)).status_code == 403


async def test_a_token_ends_with_its_very_pod_though_another_one_has_its_name(client, kube, kubectl, namespace):
    gang = Gang(kube, kubectl, namespace, "again")
    gang.make()
    before = gang.token()
    assert await beat(client, "again", before) == 200
    gang.delete("Pod")
    gang.make_pod()
    assert (await save(client, "again", before), await beat(client, "again", before)) == (403, 403)
    after = gang.token()
    assert (await beat(client, "again", after), await save(client, "again", after)) == (200, 200)


async def test_a_pod_that_outlives_its_training_job_reports_nothing_for_the_next_one_of_the_name(
    client: httpx.AsyncClient, kube, kubectl, namespace: str
) -> None:
    gang = Gang(kube, kubectl, namespace, "next")
    gang.make()
    before = gang.token()
    assert await save(client, "next", before) == 200
    gang.delete("Pod", "Job", "TrainingJob")
    gang.make()
    assert await save(client, "next", before) == 403
    assert await save(client, "next", gang.token()) == 200
