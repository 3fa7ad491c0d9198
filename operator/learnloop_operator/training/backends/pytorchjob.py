"""PyTorchJob (kubeflow.org/v1) of the Kubeflow training operator, v1: one master, any number of workers.

What v1 does not do is done by the TrainingJob: gangs are restarted whole, attempts are counted, Succeeded proves
nothing. See the traps in docs/decisions.
"""

from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.backends.backend import RankDefaults, backend_job, gang, rank_template
from learnloop_operator.training.snapshot import BackendJob, RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchJob:
    """The same pod for the master and the workers."""

    name: str = "pytorchjob"
    api_version: str = "kubeflow.org/v1"
    kind: str = "PyTorchJob"
    container: str = "pytorch"
    """The training operator insists on this name."""
    replicated_job: str = ""
    install: str = "the Kubeflow training operator v1"

    def unfit(self, _spec: TrainingJobSpec, _defaults: RankDefaults) -> str:
        """It runs every spec."""
        return ""

    def render(self, request: RunRequest, defaults: RankDefaults) -> Manifest:
        """One master and `spec.workers` workers; the training operator tells the ranks of one another."""
        return gang(self, request, _spec(rank_template(request, defaults, self.container), request.spec.workers))

    def read(self, manifest: Manifest) -> BackendJob:
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
