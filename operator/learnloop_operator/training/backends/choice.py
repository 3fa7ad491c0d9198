"""Every backend, and the choice among them. A Job (batch/v1) runs one rank and needs no installation."""

from dataclasses import dataclass

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.backends.backend import (
    Backend,
    RankDefaults,
    backend_job,
    gang,
    rank_template,
    ranks_of_jobs,
)
from learnloop_operator.training.backends.network import meeting_place, rank_network
from learnloop_operator.training.backends.pytorchjob import PyTorchJob
from learnloop_operator.training.backends.trainjob import TrainJob, long_names
from learnloop_operator.training.snapshot import BackendJob, RunRequest, TrainingSnapshot

JOB_DISRUPTED = "PodFailurePolicy"
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
            disruption=JOB_DISRUPTED,
        )


AUTO = "auto"
BACKENDS: tuple[Backend, ...] = (PyTorchJob(), TrainJob(), Job())
"""In the order in which `auto` asks: who has installed an operator for training wants it used, and the Job that needs
none comes last."""
CONTAINERS = frozenset(backend.container for backend in BACKENDS)


def candidates(asked: str) -> tuple[Backend, ...]:
    """The backends that spec.backend leaves open."""
    return tuple(backend for backend in BACKENDS if asked in (AUTO, backend.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """The backends with this installation's defaults."""

    defaults: RankDefaults

    def chosen(self, world: TrainingSnapshot) -> Backend | None:
        """The backend of the next attempt. A run that has begun stays where it is while that can run it."""
        fit = [backend for backend in candidates(world.spec.backend) if not self._refusal(world, backend)]
        recorded = world.status.get("backend")
        return next((backend for backend in fit if backend.name == recorded), fit[0] if fit else None)

    def none_fits(self, world: TrainingSnapshot) -> str:
        """Why nothing can run it, one sentence for each backend that spec.backend leaves open."""
        wanted = candidates(world.spec.backend)
        reasons = "; ".join(f"{backend.name}: {self._refusal(world, backend)}" for backend in wanted)
        return f"no backend can run it ({reasons}). It starts by itself as soon as one can"

    def render(self, backend: Backend, request: RunRequest) -> tuple[Manifest, ...]:
        """One attempt on this backend, and before it the network that its ranks see, and where samplers find it."""
        network = rank_network(request, self.defaults)
        return (*network, *meeting_place(request, self.defaults), backend.render(request, self.defaults))

    def _refusal(self, world: TrainingSnapshot, backend: Backend) -> str:
        if backend.name not in world.installed:
            kind = f"{backend.kind} ({backend.api_version})"
            return f"the kind {kind} does not exist in this cluster, install {backend.install}"
        unfit = backend.unfit(world.spec, self.defaults)
        if unfit or not backend.replicated_job:
            return unfit
        return long_names(world.name, backend.replicated_job, world.spec.workers)
