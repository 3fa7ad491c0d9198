"""The port: what the decisions about a TrainingJob ask of whatever runs its ranks."""

from dataclasses import dataclass
from typing import Protocol

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.training.snapshot import BackendJob, RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDefaults:
    """What the installation sets for all ranks."""

    image: str
    pull_policy: str
    data_url: str
    runtime: str = ""
    """ClusterTrainingRuntime that TrainJobs refer to; "": the installation has none."""
    network: WorkloadNetwork | None = None
    """What ranks may call; None: the installation wants no NetworkPolicy."""


class Backend(Protocol):
    """One kind of object that runs a gang. Pure: it neither reads nor writes anything itself."""

    @property
    def name(self) -> str:
        """The value of spec.backend."""

    @property
    def api_version(self) -> str:
        """Of its kind."""

    @property
    def kind(self) -> str:
        """The kind that the TrainingJob controls, one object of the TrainingJob's name for each attempt."""

    @property
    def container(self) -> str:
        """The ranks' container."""

    @property
    def replicated_job(self) -> str:
        """Of the JobSet beneath whose Job makes the pods; "": the pods are made by the object itself."""

    @property
    def install(self) -> str:
        """What brings the kind into a cluster."""

    def unfit(self, spec: TrainingJobSpec, defaults: RankDefaults) -> str:
        """Why it cannot run this spec, with the fix; "" where it can."""

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
        """A complete apply manifest, controlled by the TrainingJob. It never has a field that suspends: where there is
        a queue, that field is the queue's."""

    def read(self, manifest: Manifest) -> BackendJob:
        """The live object, with its end where it has one."""
