"""Ranks of a training run: their pods, the object that runs them, and how it is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest, ObjectRef, child, standard_labels
from learnloop_operator.core.pod_templates import Main, base_model, pod_template
from learnloop_operator.core.workload_network import DNS, WorkloadNetwork, addresses, data_plane, pods, policy
from learnloop_operator.training.run_snapshot import BackendJob, RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDefaults:
    """The installation's defaults for all ranks."""

    image: str
    pull_policy: str
    data_url: str
    runtime: str = ""
    """ClusterTrainingRuntime that TrainJobs refer to; "": the installation has none."""
    network: WorkloadNetwork | None = None
    """Destinations that ranks may call; None: the installation wants no NetworkPolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One kind of object that runs a gang. Pure: it neither reads nor writes anything itself."""

    name: str
    """The value of spec.backend."""
    api_version: str
    kind: str
    """The kind that the TrainingJob controls, one object of the TrainingJob's name for each attempt."""
    container: str
    """The ranks' container."""
    install: str
    """The installation that provides the kind."""
    replicated_job: str = ""
    """Replicated Job of the JobSet whose Job makes the pods; "": the object makes the pods itself."""

    def unfit(self, spec: TrainingJobSpec, defaults: RankDefaults) -> str:
        """Reason why it cannot run this spec, with the fix; "" where it can."""
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
        """A complete apply manifest, controlled by the TrainingJob. It never has a field that suspends: where there is
        a queue, that field is the queue's."""
        raise NotImplementedError

    def read(self, manifest: Manifest) -> BackendJob:
        """The live object, with its end where it has one."""
        raise NotImplementedError


COMPONENT = "trainer"
ANNOTATION_ATTEMPT = f"{names.GROUP}/attempt"
ENV_SPEC = "LEARNLOOP_TRAINING_SPEC"
GRACE_SECONDS = 30
ENVIRONMENT_VOLUME = "learnloop-environment"
ENVIRONMENT_MOUNT = {"name": ENVIRONMENT_VOLUME, "mountPath": names.ENVIRONMENT_DIRECTORY, "readOnly": True}
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Annotation in which the Job controller writes a pod's number among its peers."""
MASTER_PORT = "23456"
"""The same as on PyTorchJobs."""
NEEDS = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""Requests that the scheduler counts on. No limit of memory: what a run needs is its own, and a limit that we guessed
would kill it; spec.pod.resources or a LimitRange of the namespace sets one. A run in a queue says all of it itself: a
queue admits no run that asks for what it does not count."""


def gang(backend: Backend, request: RunRequest, spec: Manifest) -> dict[str, Any]:
    """The object that runs one attempt. A queue reads its labels, and the data plane its attempt."""
    queue = request.spec.queue
    queued = {} if queue is None else {LABEL_QUEUE: queue.name}
    if queue is not None and queue.priority_class is not None:
        queued[LABEL_PRIORITY] = queue.priority_class
    return child(
        request.job,
        backend.api_version,
        backend.kind,
        request.job["metadata"]["name"],
        {**labels(request), **queued},
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
    base, base_mounts = base_model(model.base.uri, names.BASE_MODEL_DIRECTORY) if model else ([], [])
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
            **(env or {}),
        },
        mounts=[*([ENVIRONMENT_MOUNT] if code else []), *base_mounts],
        resources={} if request.spec.queue else NEEDS,
    )
    return pod_template(
        main,
        request.spec.pod,
        labels=labels(request),
        ends=True,
        audience=names.RUN_AUDIENCE,
        volumes=[*environment_volumes(request.spec), *base],
        grace_seconds=GRACE_SECONDS,
    )


def rank_network(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """The NetworkPolicy of one TrainingJob's ranks; none where the installation wants none.

    Ranks meet on one port and exchange gradients on ports that the system gives them, so all are open among them. They
    call the data plane, the DNS and the addresses that the spec names: models, recordings, a tracking server.
    """
    network, job = defaults.network, request.job["metadata"]["name"]
    if network is None:
        return ()
    ranks = {names.LABEL_TRAINING_JOB: job, names.LABEL_COMPONENT: COMPONENT}
    spec = request.spec
    urls = [request.baseline_uri, spec.hyperparameters.to_kube().get("recording")]
    if spec.initial_policy:
        urls.append(spec.initial_policy.uri)
    if spec.tracking and spec.tracking.mlflow:
        urls.append(spec.tracking.mlflow.tracking_uri)
    if spec.data.language_model:
        urls.append(spec.data.language_model.base.uri)
    named = addresses(spec.pod, *urls)
    out = [{"to": [pods(ranks)]}, data_plane(defaults.data_url), DNS, *named, *network.to]
    manifest = policy(
        request.job,
        name=f"{job}-ranks",
        component=COMPONENT,
        selector=ranks,
        ingress=[{"from": [pods(ranks)]}],
        egress=out if network.closed else None,
    )
    return (manifest,)


def environment_volumes(spec: TrainingJobSpec) -> list[dict[str, Any]]:
    code = spec.data.environment_config_map
    return [{"name": ENVIRONMENT_VOLUME, "configMap": {"name": code.name}}] if code else []


def peers(request: RunRequest, master: str) -> dict[str, str | Mapping[str, Any]]:
    """The variables by which ranks of an indexed Job find one another; `master`: the first one's host name."""
    return {
        "RANK": {"fieldRef": {"fieldPath": INDEX}},
        "WORLD_SIZE": str(1 + request.spec.workers),
        "MASTER_ADDR": master,
        "MASTER_PORT": MASTER_PORT,
    }


def training_spec(request: RunRequest) -> str:
    """The trainer's order, as JSON. Where and by what it runs is not the trainer's business."""
    here = ("pod", "queue", "suspend")
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
    extra = {names.LABEL_TRAINING_JOB: request.job["metadata"]["name"]}
    if request.agent:
        extra[names.LABEL_AGENT] = request.agent
    return standard_labels(COMPONENT, extra)


Conditions = Mapping[str, Mapping[str, Any]]
LONGEST = 512
DIGITS = 2
"""Digits of an attempt's number, from 0: spec.maxAttempts is at most 100."""


def in_force(manifest: Manifest) -> Conditions:
    result = (manifest.get("status") or {}).get("conditions") or ()
    return {str(item.get("type")): item for item in result if item.get("status") == "True"}


def backend_job(
    backend: Backend,
    manifest: Manifest,
    *,
    succeeded: str,
    workers: int | None,
    queued: bool,
    disruption: str = "",
) -> BackendJob:
    """The gang as decisions see it. An unreadable attempt counts as the first.

    Args:
        succeeded: the type of condition that says that all ranks ended well; `Failed` is everybody's other one.
        queued: somebody holds the gang back: its object is suspended, which is never our doing.
        disruption: the reason of `Failed` that says that a node was taken away; "": the backend tells by its pods only.
    """
    metadata, status, true = manifest["metadata"], manifest.get("status") or {}, in_force(manifest)
    attempt = (metadata.get("annotations") or {}).get(ANNOTATION_ATTEMPT, "0")
    end = true.get("Failed") or true.get(succeeded) or {}
    state: Literal["active", "succeeded", "failed"] = "active"
    if "Failed" in true:
        state = "failed"
    elif succeeded in true:
        state = "succeeded"
    message = str(end.get("message") or "")[:LONGEST]
    created = times.parse(metadata["creationTimestamp"])
    assert created is not None, "the API server always sets it"
    return BackendJob(
        ref=ObjectRef(backend.api_version, backend.kind, metadata["namespace"], metadata["name"]),
        attempt=int(attempt) if str(attempt).isdecimal() and len(attempt) <= DIGITS else 0,
        created=created,
        workers=workers,
        state=state,
        finished=times.parse(status.get("completionTime") or end.get("lastTransitionTime")),
        message=message,
        queued=queued and state == "active",
        has_status=bool(status),
        disrupted=message if disruption and state == "failed" and end.get("reason") == disruption else "",
        deleting="deletionTimestamp" in metadata,
    )
