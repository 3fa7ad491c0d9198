"""The pod of a rank, the same on every backend, and the metadata of the object that runs the gang."""

import json
from collections.abc import Mapping
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.base_model_volume import mounts, volumes
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_templates import Main, pod_template
from learnloop_operator.training.backends.backend import Backend, RankDefaults
from learnloop_operator.training.snapshot import RunRequest

COMPONENT, SAMPLER = "trainer", "sampler"
ANNOTATION_ATTEMPT = f"{names.GROUP}/attempt"
ENV_SPEC = "LEARNLOOP_TRAINING_SPEC"
GRACE_SECONDS = 30
ENVIRONMENT_VOLUME = "learnloop-environment"
ENVIRONMENT_MOUNT = {"name": ENVIRONMENT_VOLUME, "mountPath": names.ENVIRONMENT_DIRECTORY, "readOnly": True}
KEY_VOLUME = "learnloop-samplers"
KEY_MOUNT = {"name": KEY_VOLUME, "mountPath": names.SAMPLERS_KEY_DIRECTORY, "readOnly": True}
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where the Job controller writes a pod's number among its peers."""
MASTER_PORT = "23456"
"""The same as on PyTorchJobs."""
NEEDS = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""What a scheduler reckons with. No limit of memory: what a run needs is its own, and one that we guessed would kill
it; spec.pod.resources or a LimitRange of the namespace sets one. A run in a queue says all of it itself: a queue admits
nobody who asks for what it does not count."""


def gang(backend: Backend, request: RunRequest, spec: Manifest) -> dict[str, Any]:
    """The object that runs one attempt. A queue reads its labels, and the data plane its attempt."""
    queue = request.spec.queue
    queued = {} if queue is None else {LABEL_QUEUE: queue.name}
    if queue is not None and queue.priority_class is not None:
        queued[LABEL_PRIORITY] = queue.priority_class
    return child(
        request.job,
        api_version=backend.api_version,
        kind=backend.kind,
        name=request.job["metadata"]["name"],
        labels={**labels(request), **queued},
        annotations={ANNOTATION_ATTEMPT: str(request.attempt)},
        spec=spec,
    )


def rank_template(
    request: RunRequest,
    defaults: RankDefaults,
    container: str,
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """core/v1 PodTemplateSpec of a rank; `env`: by what it finds its peers, where the backend does not set it."""
    code, model = request.spec.data.environment_config_map, request.spec.data.language_model
    sampled = request.spec.samplers is not None
    key = [key_volume(request.job["metadata"]["name"])] if sampled else []
    key_file = f"{names.SAMPLERS_KEY_DIRECTORY}/{names.SAMPLERS_KEY}"
    main = Main(
        name=container,
        image=defaults.image,
        pull_policy=defaults.pull_policy,
        env={
            ENV_SPEC: training_spec(request),
            names.ENV_DATA_URL: defaults.data_url,
            names.ENV_TOKEN_FILE: names.TOKEN_FILE,
            names.ENV_NAMESPACE: request.job["metadata"]["namespace"],
            names.ENV_POD_NAME: {"fieldRef": {"fieldPath": "metadata.name"}},
            **({names.ENV_ENVIRONMENT_DIRECTORY: names.ENVIRONMENT_DIRECTORY} if code else {}),
            **({names.ENV_SAMPLERS_KEY_FILE: key_file} if sampled else {}),
            **(env or {}),
        },
        mounts=[*([ENVIRONMENT_MOUNT] if code else []), *([KEY_MOUNT] if sampled else []), *mounts(model)],
        resources={} if request.spec.queue else NEEDS,
    )
    return pod_template(
        main,
        request.spec.pod,
        labels=labels(request),
        ends=True,
        audience=names.RUN_AUDIENCE,
        volumes=[*environment_volumes(request.spec), *key, *volumes(model)],
        grace_seconds=GRACE_SECONDS,
    )


def environment_volumes(spec: TrainingJobSpec) -> list[dict[str, Any]]:
    """The user's own environment, where there is one."""
    code = spec.data.environment_config_map
    return [{"name": ENVIRONMENT_VOLUME, "configMap": {"name": code.name}}] if code else []


def key_name(job: str) -> str:
    """Of the Secret by which a learner and its samplers know one another."""
    return f"{job}-samplers"


def key_volume(job: str) -> dict[str, Any]:
    """That Secret as a volume."""
    return {"name": KEY_VOLUME, "secret": {"secretName": key_name(job), "defaultMode": 0o440}}


def peers(request: RunRequest, master: str) -> dict[str, str | Mapping[str, Any]]:
    """The variables by which ranks of an indexed Job find one another; `master`: the first one's host name."""
    return {
        "RANK": {"fieldRef": {"fieldPath": INDEX}},
        "WORLD_SIZE": str(1 + request.spec.workers),
        "MASTER_ADDR": master,
        "MASTER_PORT": MASTER_PORT,
    }


def ranks_of_jobs(spec: TrainingJobSpec, template: Manifest) -> dict[str, Any]:
    """batch/v1 JobSpec of all ranks. The Job ends with the first rank that fails, and says so in a reason of its own
    where that rank's node was taken away."""
    count = 1 + spec.workers
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [disrupted]},
        "template": never_restarted(template),
    }


def never_restarted(template: Manifest) -> dict[str, Any]:
    """A rank that ended is not started again in its pod: a gang begins anew as a whole."""
    return {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}


def training_spec(request: RunRequest) -> str:
    """The trainer's order, as JSON. Where and by what it runs is not the trainer's business."""
    here = ("pod", "priority", "queue", "suspend")
    spec = {key: value for key, value in request.spec.to_kube().items() if key not in here}
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


def labels(request: RunRequest) -> dict[str, str]:
    """Labels of the gang and of its pods."""
    extra = {names.LABEL_TRAINING_JOB: request.job["metadata"]["name"]}
    if request.agent:
        extra[names.LABEL_AGENT] = request.agent
    return standard_labels(COMPONENT, extra)
