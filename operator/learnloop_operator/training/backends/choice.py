"""Every backend, registered once, and which of them runs a TrainingJob."""

from dataclasses import dataclass

from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.backends.backend import Backend, RankDefaults
from learnloop_operator.training.backends.job import Job
from learnloop_operator.training.backends.meeting_place import meeting_place
from learnloop_operator.training.backends.network import rank_network
from learnloop_operator.training.backends.pytorchjob import PyTorchJob
from learnloop_operator.training.backends.trainjob import TrainJob, long_names
from learnloop_operator.training.snapshot import RunRequest, TrainingSnapshot

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
        asked = candidates(world.spec.backend)
        reasons = "; ".join(f"{backend.name}: {self._refusal(world, backend)}" for backend in asked)
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
