"""Job (batch/v1): one rank, and nothing to install. The smallest installation trains by it."""

from dataclasses import dataclass

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.backends.backend import RankDefaults
from learnloop_operator.training.backends.gang_state import backend_job
from learnloop_operator.training.backends.rank_pods import gang, rank_template, ranks_of_jobs
from learnloop_operator.training.snapshot import BackendJob, RunRequest

DISRUPTED = "PodFailurePolicy"
"""The reason of a Job that our rule about disrupted pods has failed (batch/v1, JobReasonPodFailurePolicy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A rank alone needs no peers' addresses, and so no Service."""

    name: str = "job"
    api_version: str = "batch/v1"
    kind: str = "Job"
    container: str = "trainer"
    replicated_job: str = ""
    install: str = "nothing: every cluster has it"

    def unfit(self, spec: TrainingJobSpec, _defaults: RankDefaults) -> str:
        """It runs one rank."""
        if spec.workers == 0:
            return ""
        return f"a Job runs one rank, and spec.workers is {spec.workers}: set it to 0"

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
        """One pod that is not started again: what failed is the TrainingJob's to judge."""
        template = rank_template(request, defaults, self.container)
        return gang(self, request, ranks_of_jobs(request.spec, template))

    def read(self, manifest: Manifest) -> BackendJob:
        """Ends are `Complete` and `Failed`."""
        spec = manifest.get("spec") or {}
        return backend_job(
            self,
            manifest,
            succeeded="Complete",
            workers=int(spec.get("completions") or 1) - 1,
            queued=bool(spec.get("suspend")),
            disruption=DISRUPTED,
        )
