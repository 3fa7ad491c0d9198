"""Backends that keep silent on a real API server: what they say nothing of is found out and said by the TrainingJob."""

import asyncio
import contextlib
import copy
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from learnloop_operator.core.times import stamp
from learnloop_operator.kube.errors import Forbidden, Invalid, KindMissing, WebhookUnavailable
from learnloop_operator.kube.kinds import PYTORCH_JOB, TRAIN_JOB, TRAINING_JOB
from testing.operators.training_kinds import APPLY, DEFINITIONS, LOADER, files
from testing.training.training_builders import DEFAULTS

from .conftest import install_kinds
from .test_backends import Plane, Written, ready

TRAINING = {"algorithm": "ppo", "totalSteps": 1000, "workers": 2, "data": {"environment": "CartPole-v1"}}


@pytest.fixture
def changed_kinds(kinds: None, api_server: Path) -> Iterator[None]:
    """The API server knows every backend again when the test has changed that."""
    yield
    asyncio.run(install_kinds(api_server))


@pytest.fixture
def operator(api_server: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Written:
    made = Written(api_server, namespace, Plane())
    monkeypatch.setattr(made.training, "_backends", type(made.training._backends)(defaults=DEFAULTS))
    return made


@pytest.mark.usefixtures("kinds")
async def test_a_trainjob_whose_job_may_not_make_pods_says_why(operator: Written, namespace: str) -> None:
    await operator.create("TrainingJob", "t", {**TRAINING, "backend": "trainjob"})
    await operator.look(operator.training, "t")
    assert await operator.kube.find(TRAIN_JOB, namespace, "t")
    refused = 'Error creating: pods "t-node-0-0-" is forbidden: maximum memory usage per Container is 1Gi'
    await event(operator, "t-node-0", refused)
    status = await operator.settle(operator.training, "t")
    assert ready(status)["reason"] == "PodsHeldUp"
    assert "maximum memory usage per Container is 1Gi" in ready(status)["message"]
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("name", ["pytorchjob", "trainjob"])
async def test_a_backend_whose_controller_does_not_run_is_named_and_ends_with_the_deadline(operator, name):
    await operator.create("TrainingJob", "t", {**TRAINING, "backend": name, "deadlineSeconds": 300})
    await operator.settle(operator.training, "t")
    operator.shift = timedelta(seconds=70)
    status = await operator.settle(operator.training, "t")
    assert ready(status)["reason"] == "PodsHeldUp"
    assert "has neither a status nor pods: see that the controller of" in ready(status)["message"]
    operator.shift = timedelta(seconds=310)
    status = await operator.settle(operator.training, "t")
    assert (status["phase"], ready(status)["reason"]) == ("Failed", "DeadlineExceeded")
    await operator.kube.close()


@pytest.mark.usefixtures("kinds")
async def test_a_backend_whose_webhook_is_down_is_named_and_the_run_begins_when_it_is_back(operator, namespace):
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    name = f"down-{namespace}"
    await operator.kube.http.request("POST", path, body=webhook(name, namespace))
    refused = False
    for number in range(50):  # the API server takes a webhook a moment after it was written
        await operator.create("TrainingJob", f"t{number}", {**TRAINING, "backend": "trainjob"})
        try:
            await operator.look(operator.training, f"t{number}")
        except WebhookUnavailable:
            refused = True
            break
        await asyncio.sleep(0.2)
    assert refused
    status = (await operator.kube.get(TRAINING_JOB, namespace, f"t{number}"))["status"]
    assert ready(status)["reason"] == "WebhookUnavailable"
    assert 'failed calling webhook "down.example.com"' in ready(status)["message"]
    await operator.kube.http.request("DELETE", f"{path}/{name}")
    for _ in range(50):
        with contextlib.suppress(WebhookUnavailable):
            await operator.look(operator.training, f"t{number}")
            break
        await asyncio.sleep(0.2)
    status = (await operator.kube.get(TRAINING_JOB, namespace, f"t{number}"))["status"]
    assert (status["phase"], status["attempts"]) == ("Starting", 1)
    await operator.kube.close()


@pytest.mark.usefixtures("changed_kinds")
async def test_a_trainer_too_old_for_our_patches_is_named(operator: Written, namespace: str) -> None:
    (file,) = [file for file in files() if file.name.endswith("_trainjobs.yaml")]
    definition = yaml.load(file.read_text(encoding="utf-8"), LOADER)
    older = copy.deepcopy(definition)
    for version in older["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del spec["properties"]["runtimePatches"]
    await applied(operator, older)
    for number in range(50):  # the API server takes a definition a moment after it was written
        await operator.create("TrainingJob", f"t{number}", {**TRAINING, "backend": "trainjob"})
        try:
            await operator.look(operator.training, f"t{number}")
        except Invalid:
            break
        await asyncio.sleep(0.2)
    status = (await operator.kube.get(TRAINING_JOB, namespace, f"t{number}"))["status"]
    assert (status["phase"], ready(status)["reason"]) == ("Pending", "Refused")
    assert ".spec.runtimePatches: field not declared in schema" in ready(status)["message"]
    assert "replace its CRD" in ready(status)["message"]
    assert await operator.kube.find(TRAIN_JOB, namespace, f"t{number}") is None
    await operator.kube.close()


@pytest.mark.usefixtures("changed_kinds")
async def test_a_kind_that_goes_in_mid_run_leaves_the_run_to_another_backend(operator: Written, namespace: str) -> None:
    await operator.create("TrainingJob", "t", TRAINING)
    status = await operator.settle(operator.training, "t")
    assert (status["backend"], status["attempts"]) == ("pytorchjob", 1)
    await operator.kube.http.request("DELETE", f"{DEFINITIONS}/{PYTORCH_JOB.plural}.{PYTORCH_JOB.group}")
    for _ in range(50):
        # While the kind is on its way out, nothing can be made of it; and it may go between a read and a write.
        with contextlib.suppress(Forbidden, KindMissing):
            status = await operator.settle(operator.training, "t")
        if status["backend"] != "pytorchjob":
            break
        await asyncio.sleep(0.2)
    assert (status["backend"], status["attempts"]) == ("trainjob", 2)
    await operator.kube.close()


def webhook(name: str, namespace: str) -> dict:
    """As Trainer's is while its controller does not run; of one namespace."""
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["trainjobs"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "down.example.com",
                "clientConfig": {"url": "https://127.0.0.1:9/validate"},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            }
        ],
    }


async def applied(operator: Written, definition: dict) -> None:
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true"}
    await operator.kube.http.request("PATCH", path, body=definition, query=query, content_type=APPLY)


async def event(operator: Written, job: str, message: str) -> None:
    """As the controller of Jobs says it."""
    regarding = {"apiVersion": "batch/v1", "kind": "Job", "namespace": operator.namespace, "name": job, "uid": "u-9"}
    at = stamp(operator.now())
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job}.1", "namespace": operator.namespace},
        "involvedObject": regarding,
        "reason": "FailedCreate",
        "type": "Warning",
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": "job-controller"},
    }
    await operator.kube.http.request("POST", f"/api/v1/namespaces/{operator.namespace}/events", body=body)
