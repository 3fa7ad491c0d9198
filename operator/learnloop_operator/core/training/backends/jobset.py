"""JobSet (jobset.x-k8s.io/v1alpha2): all ranks as one indexed Job, whose pods have host names.

API reference: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
"""

from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.training.backends.backend import RankDefaults
from learnloop_operator.core.training.backends.gang_state import backend_job
from learnloop_operator.core.training.backends.job import DISRUPTED as JOB_DISRUPTED
from learnloop_operator.core.training.backends.rank_pods import gang, peers, rank_template, ranks_of_jobs
from learnloop_operator.core.training.snapshot import BackendJob, RunRequest

RANKS = "rank"
DISRUPTED = "FailJobSetFailurePolicyAction"
"""The reason of a JobSet that our rule about disrupted ranks has failed (jobset, FailJobSetActionReason)."""
COUNTED = ("count/jobsets.jobset.x-k8s.io", "count/jobs.batch", "count/services", "services")
"""The JobSet, its one Job, and the Service of its host names."""
SUFFIX, LONGEST_NAME = "abcde", 63
"""What the controller of Jobs adds to a pod's name, and the most that JobSet's webhook lets that name be."""
FAILURE_POLICY = {
    "maxRestarts": 0,
    "rules": [{"name": "disrupted", "action": "FailJobSet", "onJobFailureReasons": [JOB_DISRUPTED]}],
}
"""A JobSet never begins anew by itself. Its end says whether a node was taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSet:
    """Ranks find the first one by the host name that the JobSet's headless Service gives it."""

    name: str = "jobset"
    api_version: str = "jobset.x-k8s.io/v1alpha2"
    kind: str = "JobSet"
    container: str = "trainer"
    replicated_job: str = RANKS
    counted: tuple[str, ...] = COUNTED
    install: str = "JobSet"

    def unfit(self, _spec: TrainingJobSpec, _defaults: RankDefaults) -> str:
        """It runs every spec."""
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
        """One replicated Job with a pod for each rank."""
        name = request.job["metadata"]["name"]
        template = rank_template(request, defaults, self.container, peers(request, host_of_master(name, RANKS)))
        job = {"name": RANKS, "replicas": 1, "template": {"spec": ranks_of_jobs(request.spec, template)}}
        network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        return gang(self, request, {"network": network, "failurePolicy": FAILURE_POLICY, "replicatedJobs": [job]})

    def read(self, manifest: Manifest) -> BackendJob:
        """Ends are `Completed` and `Failed`."""
        spec = manifest.get("spec") or {}
        return backend_job(
            self,
            manifest,
            succeeded="Completed",
            workers=_workers(spec),
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
        f"that they may have: create it anew under a name of at most {len(name) - over}, or on another backend"
    )


def _workers(spec: dict[str, Any]) -> int | None:
    for item in spec.get("replicatedJobs") or ():
        if item.get("name") == RANKS:
            return int(item["template"]["spec"].get("completions") or 1) - 1
    return None
