"""TrainJob (trainer.kubeflow.org/v1alpha1) of Kubeflow Trainer v2: the chart's ClusterTrainingRuntime, patched.

Labels of a TrainJob reach neither its JobSet nor the pods: they go into `runtimePatches`, under a manager of our own.
API reference: https://www.kubeflow.org/docs/components/trainer/operator-guides/runtime-patches/
"""

from dataclasses import dataclass
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.backends.backend import RankDefaults, backend_job, gang, peers, rank_template
from learnloop_operator.training.snapshot import BackendJob, RunRequest

DISRUPTED = "FailJobSetFailurePolicyAction"
"""The reason of a JobSet that the runtime's rule about disrupted ranks has failed (jobset, FailJobSetActionReason)."""
SUFFIX, LONGEST_NAME = "abcde", 63
"""What the controller of Jobs adds to a pod's name, and the most that JobSet's webhook lets that name be."""
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
"""What Trainer lets a patch say about a pod; the runtime says the rest."""
NOT_PATCHED = (
    "image_pull_policy",
    "priority_class_name",
    "resource_claims",
    "topology_spread_constraints",
    "scheduler_name",
)
"""Pod options that no patch can carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Trainer makes a JobSet of it, and the pods are that JobSet's."""

    name: str = "trainjob"
    api_version: str = "trainer.kubeflow.org/v1alpha1"
    kind: str = "TrainJob"
    container: str = NODE
    replicated_job: str = NODE
    install: str = "Kubeflow Trainer v2.2 or later"

    def unfit(self, spec: TrainingJobSpec, defaults: RankDefaults) -> str:
        """It needs the chart's runtime, and cannot carry every pod option."""
        if not defaults.runtime:
            return "a TrainJob needs our ClusterTrainingRuntime: set the chart's value trainer.runtime.create"
        for field in NOT_PATCHED:
            if getattr(spec.pod, field):
                return f"Trainer lets no TrainJob set spec.pod.{_alias(field)}: remove it, or set backend: pytorchjob"
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
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

    def read(self, manifest: Manifest) -> BackendJob:
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
    """Why a JobSet of this name would not be let in; "" where it would. The last pod has the longest name of all."""
    over = len(f"{job_of_ranks(name, replicated_job)}-{workers}-{SUFFIX}") - LONGEST_NAME
    if over <= 0:
        return ""
    return (
        f"JobSet makes names of pods from metadata.name, which are {over} longer than the {LONGEST_NAME} characters "
        f"that they may have: create it again under a name of at most {len(name) - over}, or on another backend"
    )


def _alias(field: str) -> str:
    result: Any = PodOptions.model_fields[field].alias
    return str(result or field)
