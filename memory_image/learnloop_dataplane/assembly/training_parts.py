"""Training: jobs, runs, studies, artifacts, and which model serves."""

from learnloop_dataplane.assembly.shared_parts import SharedParts
from learnloop_dataplane.notifications.approvals import Approvals
from learnloop_dataplane.registry.artifacts import Artifacts, Keeping
from learnloop_dataplane.registry.deployments import Deployments, GateRecords
from learnloop_dataplane.training.jobs import TrainingJobs
from learnloop_dataplane.training.runs import Runs
from learnloop_dataplane.training.study_storage import StudyThreads

STORES_SECONDS = 10.0  # between two looks at what nothing else may ask for long


class TrainingParts:
    """What routes and background work need of training."""

    def __init__(self, shared: SharedParts) -> None:
        config, db, blobs = shared.config, shared.db, shared.blobs
        self._shared = shared
        self.artifacts = Artifacts(db, blobs, config.max_artifact_bytes)
        self.keeping = Keeping(db, blobs, config.artifact_retention_days)
        publish = shared.bus.publish_best_effort if shared.bus else None
        self.runs = Runs(db, blobs, shared.metrics, shared.events, shared.arrived, publish)
        self.studies = StudyThreads(db, config.dsn.get_secret_value())
        self.jobs = TrainingJobs(db, shared.kube if config.training_api else None)
        self.gates = GateRecords(db, self.artifacts)
        self.deployments = Deployments(db, shared.events, shared.arrived)
        self.approvals = Approvals(db, shared.notifications, shared.references)

    def start(self) -> None:
        """Begins looking after the artifact store."""
        self._shared.background.repeat(self.artifacts.look, "artifact store", pause=STORES_SECONDS)

    def close(self) -> None:
        """Takes no more studies."""
        self.studies.close()
