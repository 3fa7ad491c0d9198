"""Backends of training (PyTorchJob, TrainJob, Job, RayJob), and the choice among them."""

import shlex
from dataclasses import dataclass
from typing import Any

from learnloop_api import names
from learnloop_api.kinds import base, training_job
from learnloop_operator.core.plan import KubeObject
from learnloop_operator.training.ranks import (
    RAY_SCRIPT,
    Backend,
    RankDefaults,
    backend_job,
    gang,
    peers,
    rank_network,
    rank_template,
)
from learnloop_operator.training.run_snapshot import BackendJob, RunRequest, TrainingSnapshot


class PyTorchJob(Backend):
    """The same pod for the master and the workers."""

    def render(self, request: RunRequest, defaults: RankDefaults) -> KubeObject:
        """One master and `spec.workers` workers; the training operator tells the ranks of one another."""
        return gang(self, request, _spec(rank_template(request, defaults, self.container), request.spec.workers))

    def read(self, manifest: KubeObject) -> BackendJob:
        """Ends are `Succeeded` and `Failed`. Node loss is read from the pods' status."""
        spec = manifest.get("spec") or {}
        replicas = spec.get("pytorchReplicaSpecs")
        return backend_job(
            self,
            manifest,
            succeeded="Succeeded",
            workers=None if replicas is None else int((replicas.get("Worker") or {}).get("replicas", 0)),
            queued=bool((spec.get("runPolicy") or {}).get("suspend")),
        )


def _spec(template: dict[str, Any], workers: int) -> dict[str, Any]:
    # Imported when the first gang is made: Kubeflow's models bring the whole official client.
    from kubeflow.training import KubeflowOrgV1PyTorchJobSpec, KubeflowOrgV1ReplicaSpec, KubeflowOrgV1RunPolicy
    from kubernetes.client import ApiClient

    counts = {"Master": 1, "Worker": workers} if workers else {"Master": 1}
    # ExitCode: 1-127 end the job, 128-255 mean "try me again".
    replicas = {
        role: KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="ExitCode", template=template)
        for role, count in counts.items()
    }
    # Running: what still runs when the job has ended would only hold GPUs; finished pods keep their last words.
    policy = KubeflowOrgV1RunPolicy(clean_pod_policy="Running")
    spec = KubeflowOrgV1PyTorchJobSpec(pytorch_replica_specs=replicas, run_policy=policy)
    made: dict[str, Any] = ApiClient().sanitize_for_serialization(spec)
    return made


DISRUPTED = "FailJobSetFailurePolicyAction"
"""The reason of a JobSet that the runtime's rule about disrupted ranks has failed (jobset, FailJobSetActionReason)."""
SUFFIX, LONGEST_NAME = "abcde", 63
"""Suffix that the controller of Jobs adds to a pod's name, and the most that JobSet's webhook lets that name be."""
MANAGER = f"{names.GROUP}/operator"
NODE = "node"
"""The replicated Job and the container that a runtime's trainer step has, by Trainer's rules."""
PATCHED = (
    "serviceAccountName",
    "volumes",
    "imagePullSecrets",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
    "terminationGracePeriodSeconds",
)
"""Fields of a pod that Trainer lets a patch set; the runtime says the rest."""
NOT_PATCHED = (
    "image_pull_policy",
    "priority_class_name",
    "resource_claims",
    "topology_spread_constraints",
    "scheduler_name",
)
"""Pod options that no patch can carry."""


class TrainJob(Backend):
    """Trainer makes a JobSet of it, and the pods are that JobSet's."""

    def unfit(self, spec: training_job.TrainingJobSpec, defaults: RankDefaults) -> str:
        """Require the chart's runtime, and pod options that a TrainJob can carry."""
        if not defaults.runtime:
            return "a TrainJob needs our ClusterTrainingRuntime: set the chart's value trainer.runtime.create"
        if spec.trained_by == "image":
            return "a TrainJob carries no second container, which engine: image needs: set backend to pytorchjob or job"
        for field in NOT_PATCHED:
            if getattr(spec.pod, field):
                return f"Trainer lets no TrainJob set spec.pod.{_alias(field)}: remove it, or set backend: pytorchjob"
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> KubeObject:
        """The runtime's name, what the container runs, and a patch for all that is this attempt's own."""
        name = request.job["metadata"]["name"]
        template = rank_template(request, defaults, self.container, peers(request, host_of_master(name, NODE)))
        pod, container = template["spec"], template["spec"]["containers"][0]
        own = {
            "name": NODE,
            "volumeMounts": container["volumeMounts"],
            "securityContext": container["securityContext"],
        }
        patched = {key: pod[key] for key in PATCHED if key in pod}
        ranks = {"metadata": template["metadata"], "spec": {**patched, "containers": [own]}}
        jobs = [{"name": NODE, "template": {"spec": {"template": ranks}}}]
        trainer = {
            "image": container["image"],
            "numNodes": 1 + request.spec.workers,
            "env": container["env"],
            **({"resourcesPerNode": container["resources"]} if "resources" in container else {}),
        }
        spec = {
            "runtimeRef": {"name": defaults.runtime},
            "trainer": trainer,
            "runtimePatches": [
                {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
            ],
        }
        return gang(self, request, spec)

    def read(self, manifest: KubeObject) -> BackendJob:
        """Ends are `Complete` and `Failed`, with the reasons of the JobSet below."""
        spec = manifest.get("spec") or {}
        nodes = (spec.get("trainer") or {}).get("numNodes")
        return backend_job(
            self,
            manifest,
            succeeded="Complete",
            workers=None if nodes is None else int(nodes) - 1,
            queued=bool(spec.get("suspend")),
            disruption=DISRUPTED,
        )


def host_of_master(name: str, replicated_job: str) -> str:
    """`<JobSet>-<replicated Job>-<number of the Job>-<number of the pod>.<subdomain, the JobSet's name>`."""
    return f"{job_of_ranks(name, replicated_job)}-0.{name}"


def job_of_ranks(name: str, replicated_job: str) -> str:
    """The Job that makes the pods of a JobSet of one replicated Job."""
    return f"{name}-{replicated_job}-0"


def long_names(name: str, replicated_job: str, workers: int) -> str:
    """Reason why a JobSet of this name is refused; "" where it is not. The last pod has the longest name."""
    over = len(f"{job_of_ranks(name, replicated_job)}-{workers}-{SUFFIX}") - LONGEST_NAME
    if over <= 0:
        return ""
    return (
        f"JobSet makes names of pods from metadata.name, which are {over} longer than the {LONGEST_NAME} characters "
        f"that they may have: create it again under a name of at most {len(name) - over}, or on another backend"
    )


def _alias(field: str) -> str:
    result: Any = base.PodOptions.model_fields[field].alias
    return str(result or field)


JOB_DISRUPTED = "PodFailurePolicy"
"""The reason of a Job that our rule about disrupted pods has failed (batch/v1, JobReasonPodFailurePolicy)."""


ENDS = {
    "backoffLimit": 0,
    "podFailurePolicy": {
        "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    },
}
"""A Job ends with its first rank that fails, with a reason of its own where the node was taken away."""


class Job(Backend):
    """A rank alone needs no peers' addresses, and so no Service."""

    def unfit(self, spec: training_job.TrainingJobSpec, _defaults: RankDefaults) -> str:
        """Accept one rank."""
        if spec.workers == 0:
            return ""
        return f"a Job runs one rank, and spec.workers is {spec.workers}: set it to 0"

    def render(self, request: RunRequest, defaults: RankDefaults) -> KubeObject:
        """One pod that is not started again: what failed is the TrainingJob's to judge."""
        template = rank_template(request, defaults, self.container)
        return gang(
            self, request, {**ENDS, "template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
        )

    def read(self, manifest: KubeObject) -> BackendJob:
        """Ends are `Complete` and `Failed`."""
        spec = manifest.get("spec") or {}
        return backend_job(
            self,
            manifest,
            succeeded="Complete",
            workers=0,
            queued=bool(spec.get("suspend")),
            disruption=JOB_DISRUPTED,
        )


RAY_WORKER = "ray-worker"
RAY_ENDS = {"Complete": "Complete", "Failed": "Failed", "ValidationFailed": "Failed"}
"""Conditions that KubeRay would write, by status.jobDeploymentStatus."""


class RayJob(Backend):
    """A Ray cluster for the program of engine image. The trainer is the second container of its head, and alone: Ray's
    workers have the program's image and no token."""

    def unfit(self, spec: training_job.TrainingJobSpec, _defaults: RankDefaults) -> str:
        """Accept engine image."""
        if spec.trained_by == "image":
            return ""
        return "a RayJob runs the program of engine: image: set algorithm to custom, or choose another backend"

    def render(self, request: RunRequest, defaults: RankDefaults) -> KubeObject:
        """KubeRay starts Ray in the first container of each pod, then the program by Ray's API. The cluster goes a
        minute after the end: pods that have failed say why."""
        template = rank_template(request, defaults, self.container)
        trainer, engine = template["spec"]["containers"]
        entrypoint = f"{shlex.join(engine.pop('command'))}; {RAY_SCRIPT}"
        mounted = {mount["name"] for mount in engine["volumeMounts"]}
        volumes = [volume for volume in template["spec"]["volumes"] if volume["name"] in mounted]
        count = request.spec.workers
        workers = {
            "groupName": "workers",
            **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), count),
            **_group(template, containers=[{**engine, "name": RAY_WORKER}], volumes=volumes),
        }
        cluster = {
            "headGroupSpec": _group(template, containers=[engine, trainer]),
            **({"workerGroupSpecs": [workers]} if count else {}),
        }
        ends = {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 60}
        spec = {"entrypoint": entrypoint, "submissionMode": "HTTPMode", "rayClusterSpec": cluster, **ends}
        return gang(self, request, spec)

    def read(self, manifest: KubeObject) -> BackendJob:
        """KubeRay writes words in place of conditions: Ray's own, and those of the cluster around it."""
        spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
        end = RAY_ENDS.get(str(status.get("jobDeploymentStatus")))
        if end and status.get("jobStatus") in ("FAILED", "STOPPED"):
            end = "Failed"
        reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
        condition = {"type": end, "status": "True", "message": f"{reason}: {message}" if reason else message}
        conditions = [{**condition, "lastTransitionTime": status.get("endTime")}] if end else []
        cluster = spec.get("rayClusterSpec")
        groups = (cluster or {}).get("workerGroupSpecs") or ()
        return backend_job(
            self,
            {**manifest, "status": {**status, "conditions": conditions} if status else {}},
            succeeded="Complete",
            workers=None if cluster is None else sum(int(group.get("replicas") or 0) for group in groups),
            queued=bool(spec.get("suspend")),
        )


def _group(template: dict[str, Any], **pod: Any) -> dict[str, Any]:
    return {
        "rayStartParams": {},
        "template": {**template, "spec": {**template["spec"], "restartPolicy": "Never", **pod}},
    }


AUTO = "auto"
PYTORCH_JOB = PyTorchJob(
    name="pytorchjob",
    api_version="kubeflow.org/v1",
    kind="PyTorchJob",
    container="pytorch",  # the training operator insists on this name
    install="the Kubeflow training operator v1",
)
TRAIN_JOB = TrainJob(
    name="trainjob",
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="TrainJob",
    container=NODE,
    replicated_job=NODE,
    install="Kubeflow Trainer v2.2 or later",
)
JOB = Job(name="job", api_version="batch/v1", kind="Job", container="trainer", install="nothing: every cluster has it")
RAY_JOB = RayJob(
    name="rayjob",
    api_version="ray.io/v1",
    kind="RayJob",
    container="trainer",
    install="KubeRay",
    longest_name=47,  # KubeRay's MaxRayJobNameLength
    callers=(
        {
            "from": [
                {
                    "namespaceSelector": {},
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
                }
            ],
            "ports": [{"port": 8265}],  # Ray's API, by which KubeRay starts and follows the program
        },
    ),
)
BACKENDS: tuple[Backend, ...] = (PYTORCH_JOB, TRAIN_JOB, JOB, RAY_JOB)
"""Backends in the order in which `auto` tries them: an installed training operator goes first, the plain Job last.
`auto` never means RayJob: its pods meet by Ray alone."""
CONTAINERS = frozenset({RAY_WORKER, *(backend.container for backend in BACKENDS)})


def candidates(preference: str) -> tuple[Backend, ...]:
    """The backends that spec.backend leaves open."""
    every = BACKENDS[:-1] if preference == AUTO else BACKENDS
    return tuple(backend for backend in every if preference in (AUTO, backend.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """The backends with this installation's defaults."""

    defaults: RankDefaults

    def chosen(self, snapshot: TrainingSnapshot) -> Backend | None:
        """The backend of the next attempt. A run that has begun stays where it is while that can run it."""
        fit = [backend for backend in candidates(snapshot.spec.backend) if not self._refusal(snapshot, backend)]
        recorded = snapshot.status.get("backend")
        return next((backend for backend in fit if backend.name == recorded), fit[0] if fit else None)

    def none_fits(self, snapshot: TrainingSnapshot) -> str:
        """Reason why nothing can run it, one sentence for each backend that spec.backend leaves open."""
        wanted = candidates(snapshot.spec.backend)
        reasons = "; ".join(f"{backend.name}: {self._refusal(snapshot, backend)}" for backend in wanted)
        return f"no backend can run it ({reasons}). It starts by itself as soon as one can"

    def render(self, backend: Backend, request: RunRequest) -> tuple[KubeObject, ...]:
        """One attempt on this backend, and before it the network that its ranks see."""
        return (*rank_network(backend, request, self.defaults), backend.render(request, self.defaults))

    def _refusal(self, snapshot: TrainingSnapshot, backend: Backend) -> str:
        if backend.name not in snapshot.installed:
            kind = f"{backend.kind} ({backend.api_version})"
            return f"the kind {kind} does not exist in this cluster, install {backend.install}"
        unfit = backend.unfit(snapshot.spec, self.defaults)
        if len(snapshot.name) > backend.longest_name and not unfit:
            unfit = f"metadata.name is longer than the {backend.longest_name} characters that a {backend.kind} may have"
            unfit += ": create it again under a shorter one, or on another backend"
        if unfit or not backend.replicated_job:
            return unfit
        return long_names(snapshot.name, backend.replicated_job, snapshot.spec.workers)
