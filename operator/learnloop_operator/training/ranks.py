"""Ranks of a training run: their pods, the object that runs them, and how it is read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire import engine
from learnloop_operator.core import plan, pod_templates, times, workload_network
from learnloop_operator.training import kueue
from learnloop_operator.training.run_snapshot import BackendJob, RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDefaults:
    """The installation's defaults for all ranks."""

    image: str
    pull_policy: str
    data_url: str
    runtime: str = ""
    """ClusterTrainingRuntime that TrainJobs refer to; "": the installation has none."""
    network: workload_network.WorkloadNetwork | None = None
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
    longest_name: int = 253
    callers: tuple[plan.KubeObject, ...] = ()
    """NetworkPolicyIngressRules of others than ranks that call a rank."""

    def unfit(self, spec: TrainingJobSpec, defaults: RankDefaults) -> str:
        """Reason why it cannot run this spec, with the fix; "" where it can."""
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> plan.KubeObject:
        """A complete apply manifest, controlled by the TrainingJob. It never has a field that suspends: where there is
        a queue, that field is the queue's."""
        raise NotImplementedError

    def read(self, manifest: plan.KubeObject) -> BackendJob:
        """The live object, with its end where it has one."""
        raise NotImplementedError


COMPONENT = "trainer"
ANNOTATION_ATTEMPT = f"{names.GROUP}/attempt"
ENV_SPEC = "LEARNLOOP_TRAINING_SPEC"
GRACE_SECONDS = 30
ENVIRONMENT_VOLUME = "learnloop-environment"
ENVIRONMENT_MOUNT = {"name": ENVIRONMENT_VOLUME, "mountPath": names.ENVIRONMENT_DIRECTORY, "readOnly": True}
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Annotation in which the Job controller writes a pod's number among its peers."""
MASTER_PORT = "23456"
"""The same as on PyTorchJobs."""
NEEDS = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""Requests that the scheduler counts on. No limit of memory: what a run needs is its own, and a limit that we guessed
would kill it; spec.pod.resources or a LimitRange of the namespace sets one. A run in a queue says all of it itself: a
queue admits no run that asks for what it does not count."""


def gang(backend: Backend, request: RunRequest, spec: plan.KubeObject) -> dict[str, Any]:
    """The object that runs one attempt. A queue reads its labels, and the data plane its attempt."""
    return plan.child(
        request.job,
        backend.api_version,
        backend.kind,
        request.job["metadata"]["name"],
        {**labels(request), **kueue.queue_labels(request.spec)},
        annotations={ANNOTATION_ATTEMPT: str(request.attempt)},
        spec=spec,
    )


ENGINE = "engine"
"""The container with the user's own program, next to the trainer's."""
ENGINE_MOUNT = {"name": "learnloop-engine", "mountPath": "/var/run/learnloop/engine"}
ENGINE_TMP = "learnloop-engine-tmp"
ENGINE_VOLUMES = [{"name": name, "emptyDir": {"sizeLimit": "32Gi"}} for name in (ENGINE_MOUNT["name"], ENGINE_TMP)]
PROVER_NEEDS = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}}
"""Of the trainer next to an engine, which only proves: a checkpoint of up to 4 GiB is in its memory more than once."""
ENGINE_SCRIPT = f"""cd /tmp
folder=${engine.ENV_DIRECTORY}
until [ -e "$folder/{engine.ORDER}" ]; do [ -e "$folder/{engine.STOP}" ] && exit 0; sleep 0.2; done
trap 'kill -TERM "$child" 2>/dev/null' TERM
"$@" & child=$!
(until [ -e "$folder/{engine.STOP}" ]; do sleep 0.5; done
kill -TERM "$child"; sleep 20; kill -KILL "$child") 2>/dev/null &
watch=$!
wait "$child"; code=$?
if kill -0 "$child" 2>/dev/null; then wait "$child"; code=$?; fi
kill "$watch" 2>/dev/null
echo "$code" >"$folder/{engine.EXIT}"
exit "$code"
"""
"""Runs the command between the trainer's order and its word to stop, passes SIGTERM on, and says how it ended."""
RAY_SCRIPT = f'code=$?; until [ -e "${engine.ENV_DIRECTORY}/{engine.STOP}" ]; do sleep 0.5; done; exit "$code"'
"""Follows the script on a Ray cluster, which ends with its job: the trainer has not proven the run before STOP."""


def engine_container(
    request: RunRequest, defaults: RankDefaults, base_mounts: Sequence[plan.KubeObject]
) -> dict[str, Any]:
    """The program of spec.pod. It has no token and shares no folder with the trainer but the one of the contract: what
    proves a run is out of its reach."""
    spec, code = request.spec, request.spec.data.environment_config_map
    main = pod_templates.Main(
        name=ENGINE,
        image="",
        pull_policy=defaults.pull_policy,
        command=["/bin/sh", "-c", ENGINE_SCRIPT, "sh", *(spec.pod.command or ())],
        env={
            engine.ENV_DIRECTORY: ENGINE_MOUNT["mountPath"],
            "HOME": "/tmp",
            **({names.ENV_ENVIRONMENT_DIRECTORY: names.ENVIRONMENT_DIRECTORY} if code else {}),
        },
        mounts=[ENGINE_MOUNT, *([ENVIRONMENT_MOUNT] if code else []), *base_mounts],
        resources={} if spec.queue else NEEDS,
    )
    made = pod_templates.container(main, spec.pod, token=False)
    scratch, *mounts = made["volumeMounts"]
    return {**made, "volumeMounts": [{**scratch, "name": ENGINE_TMP}, *mounts]}


ENGINES_OWN = ("image", "image_pull_policy", "resources", "env", "volume_mounts")
"""Options of spec.pod that are the engine's container's alone."""


def stray_mount(spec: TrainingJobSpec) -> str:
    """The mount that would give an engine a volume of learnloop's, as is the run's token; "" where there is none."""
    named = {volume.get("name") for volume in spec.pod.volumes or ()}
    mounts = spec.pod.volume_mounts or () if spec.trained_by == "image" else ()
    for number, name in enumerate(mount.get("name") for mount in mounts):
        if name not in named:
            field = f"spec.pod.volumeMounts[{number}].name"
            return f"{field}: {name!r} names no volume of spec.pod.volumes; add it there, or remove the mount"
    return ""


def rank_template(
    request: RunRequest,
    defaults: RankDefaults,
    named: str,
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """core/v1 PodTemplateSpec of a rank; `env`: by what it finds its peers, where the backend does not set it."""
    code, model = request.spec.data.environment_config_map, request.spec.data.language_model
    foreign, options = request.spec.trained_by == "image", request.spec.pod
    if foreign:  # the operator's own image proves, and what an author sets could change what it proves
        options = options.model_copy(update=dict.fromkeys(ENGINES_OWN))
    base, base_mounts = pod_templates.base_model(model.base.uri, names.BASE_MODEL_DIRECTORY) if model else ([], [])
    main = pod_templates.Main(
        name=named,
        image=defaults.image,
        pull_policy=defaults.pull_policy,
        env={
            ENV_SPEC: training_spec(request),
            names.ENV_DATA_URL: defaults.data_url,
            names.ENV_TOKEN_FILE: names.TOKEN_FILE,
            names.ENV_NAMESPACE: request.job["metadata"]["namespace"],
            names.ENV_POD_NAME: {"fieldRef": {"fieldPath": "metadata.name"}},
            **({names.ENV_ENVIRONMENT_DIRECTORY: names.ENVIRONMENT_DIRECTORY} if code else {}),
            **({engine.ENV_DIRECTORY: ENGINE_MOUNT["mountPath"]} if foreign else {}),
            **(env or {}),
        },
        mounts=[*([ENVIRONMENT_MOUNT] if code else []), *([ENGINE_MOUNT] if foreign else []), *base_mounts],
        resources=PROVER_NEEDS if foreign else {} if request.spec.queue else NEEDS,
    )
    return pod_templates.pod_template(
        main,
        options,
        labels=labels(request),
        ends=True,
        audience=names.RUN_AUDIENCE,
        volumes=[*environment_volumes(request.spec), *(ENGINE_VOLUMES if foreign else ()), *base],
        sidecars=[engine_container(request, defaults, base_mounts)] if foreign else (),
        grace_seconds=GRACE_SECONDS,
    )


def rank_network(backend: Backend, request: RunRequest, defaults: RankDefaults) -> tuple[plan.KubeObject, ...]:
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
    if spec.safety and spec.safety.fallback_policy:
        urls.append(spec.safety.fallback_policy.uri)
    if spec.tracking and spec.tracking.mlflow:
        urls.append(spec.tracking.mlflow.tracking_uri)
    if spec.data.language_model:
        urls.append(spec.data.language_model.base.uri)
    named = workload_network.addresses(spec.pod, *urls)
    out = [
        {"to": [workload_network.pods(ranks)]},
        workload_network.data_plane(defaults.data_url),
        workload_network.DNS,
        *named,
        *network.to,
    ]
    manifest = workload_network.policy(
        request.job,
        name=f"{job}-ranks",
        component=COMPONENT,
        selector=ranks,
        ingress=[{"from": [workload_network.pods(ranks)]}, *backend.callers],
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
    if request.spec.trained_by == "image":  # the program is part of the recipe
        spec["pod"] = {"image": request.spec.pod.image, "command": request.spec.pod.command}
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
    return plan.standard_labels(COMPONENT, extra)


Conditions = Mapping[str, Mapping[str, Any]]
LONGEST = 512
DIGITS = 2
"""Digits of an attempt's number, from 0: spec.maxAttempts is at most 100."""


def true_conditions(manifest: plan.KubeObject) -> Conditions:
    result = (manifest.get("status") or {}).get("conditions") or ()
    return {str(item.get("type")): item for item in result if item.get("status") == "True"}


def backend_job(
    backend: Backend,
    manifest: plan.KubeObject,
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
    metadata, status, true = manifest["metadata"], manifest.get("status") or {}, true_conditions(manifest)
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
        ref=plan.ObjectRef(backend.api_version, backend.kind, metadata["namespace"], metadata["name"]),
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
