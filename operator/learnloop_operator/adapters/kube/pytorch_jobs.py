"""PyTorchJob (kubeflow.org/v1): rendered for one attempt, read back as a BackendJob.

What v1 does not do is done by the TrainingJob: gangs are restarted whole, attempts are counted, Succeeded proves
nothing. See the traps in docs/decisions.
"""

import json
from dataclasses import dataclass
from typing import Any

from learnloop_api import names
from learnloop_operator.adapters.kube.kinds import PYTORCH_JOB, ref_of
from learnloop_operator.adapters.settings import Settings
from learnloop_operator.core import times
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_templates import Main, pod_template
from learnloop_operator.core.training.snapshot import BackendJob, RunRequest

CONTAINER = "pytorch"
"""The training operator insists on this name."""
ANNOTATION_ATTEMPT = f"{names.GROUP}/attempt"
ENV_SPEC = "LEARNLOOP_TRAINING_SPEC"
GRACE_SECONDS = 30
ENVIRONMENT_VOLUME = "learnloop-environment"
MOUNT = {"name": ENVIRONMENT_VOLUME, "mountPath": names.ENVIRONMENT_DIRECTORY, "readOnly": True}


@dataclass(frozen=True, slots=True)
class PyTorchJobs:
    """Renders PyTorchJobs with the operator's defaults."""

    settings: Settings

    def render(self, request: RunRequest) -> Manifest:
        """One master, `spec.workers` workers, the same pod for all ranks."""
        template = self._template(request)
        replicas = {"Master": _replica(1, template)}
        if request.spec.workers:
            replicas["Worker"] = _replica(request.spec.workers, template)
        return child(
            request.job,
            api_version=PYTORCH_JOB.api_version,
            kind=PYTORCH_JOB.kind,
            name=request.job["metadata"]["name"],
            labels=_labels(request),
            annotations={ANNOTATION_ATTEMPT: str(request.attempt)},
            # Running: what still runs when the job has ended would only hold GPUs; finished pods keep their last words.
            spec={"runPolicy": {"cleanPodPolicy": "Running"}, "pytorchReplicaSpecs": replicas},
        )

    def _template(self, request: RunRequest) -> dict[str, Any]:
        settings, code = self.settings, request.spec.data.environment_config_map
        main = Main(
            name=CONTAINER,
            image=settings.trainer_image,
            pull_policy=settings.image_pull_policy,
            env={
                ENV_SPEC: training_spec(request),
                names.ENV_DATA_URL: settings.data_url,
                names.ENV_TOKEN_FILE: names.TOKEN_FILE,
                names.ENV_NAMESPACE: request.job["metadata"]["namespace"],
                names.ENV_POD_NAME: {"fieldRef": {"fieldPath": "metadata.name"}},
                **({names.ENV_ENVIRONMENT_DIRECTORY: names.ENVIRONMENT_DIRECTORY} if code else {}),
            },
            mounts=[MOUNT] if code else [],
        )
        return pod_template(
            main,
            request.spec.pod,
            labels=_labels(request),
            annotations={"sidecar.istio.io/inject": "false"},
            volumes=[{"name": ENVIRONMENT_VOLUME, "configMap": {"name": code.name}}] if code else [],
            grace_seconds=GRACE_SECONDS,
        )


def training_spec(request: RunRequest) -> str:
    """The trainer's order, as JSON. The pod options are not the trainer's business."""
    spec = {key: value for key, value in request.spec.to_kube().items() if key not in ("pod", "suspend")}
    order = {
        "job": request.job["metadata"]["name"],
        "agent": request.agent,
        "attempt": request.attempt,
        "spec": spec,
        "baselineUri": request.baseline_uri,
        "baselineSha256": request.baseline_sha256,
    }
    if request.reward_policy is not None:
        name, revision = request.reward_policy
        order["rewardPolicy"] = {"name": name, "revision": revision}
    return json.dumps({key: value for key, value in order.items() if value is not None}, sort_keys=True)


def job_of(manifest: Manifest) -> BackendJob:
    """The live PyTorchJob. An unreadable attempt counts as the first."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    attempt = (metadata.get("annotations") or {}).get(ANNOTATION_ATTEMPT, "0")
    ended = {item["type"]: item for item in status.get("conditions") or () if item.get("status") == "True"}
    end = ended.get("Failed") or ended.get("Succeeded") or {}
    created = times.parse(metadata["creationTimestamp"])
    assert created is not None, "the API server always sets it"
    return BackendJob(
        ref=ref_of({"apiVersion": PYTORCH_JOB.api_version, "kind": PYTORCH_JOB.kind, **manifest}),
        attempt=int(attempt) if attempt.isdecimal() else 0,
        created=created,
        workers=_workers(manifest),
        state="failed" if "Failed" in ended else "succeeded" if "Succeeded" in ended else "active",
        finished=times.parse(status.get("completionTime") or end.get("lastTransitionTime")),
        message=str(end.get("message") or "")[:512],
        deleting="deletionTimestamp" in metadata,
    )


def _workers(manifest: Manifest) -> int | None:
    replicas = manifest.get("spec", {}).get("pytorchReplicaSpecs")
    return None if replicas is None else int(replicas.get("Worker", {}).get("replicas", 0))


def _labels(request: RunRequest) -> dict[str, str]:
    extra = {names.LABEL_TRAINING_JOB: request.job["metadata"]["name"]}
    if request.agent:
        extra[names.LABEL_AGENT] = request.agent
    return standard_labels("trainer", extra)


def _replica(count: int, template: dict[str, Any]) -> dict[str, Any]:
    # ExitCode: 1-127 end the job, 128-255 mean "try me again".
    return {"replicas": count, "restartPolicy": "ExitCode", "template": template}
