"""What a decision about a TrainingJob may look at. No backend's vocabulary: PyTorchJob is one of several."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, Protocol

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training import Heartbeat, TrainingRun
from learnloop_operator.core import times
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.core.plan import Manifest, ObjectRef
from learnloop_operator.core.snapshot import BaseSnapshot
from learnloop_operator.tuning.value_objects import named_value

CONFIGURATION_ERROR = 2
"""Exit code of the trainer for what no retry can heal."""


@named_value
class BackendJob:
    """The object that runs the gang of one attempt."""

    ref: ObjectRef
    attempt: int
    """From 0, as the trainer's heartbeats have it."""
    created: datetime
    workers: int | None = None
    """Ranks beside the master it was made with; None: unknown."""
    state: Literal["active", "succeeded", "failed"] = "active"
    finished: datetime | None = None
    message: str = ""
    trouble: str = ""
    """Why its pods cannot be made, in the words of whoever refuses them."""
    deleting: bool = False


@named_value
class Rank:
    """One pod of the gang."""

    name: str
    created: datetime
    running: bool = False
    started: datetime | None = None
    """When its container started."""
    exit_code: int | None = None
    message: str = ""
    """The trainer's own last sentence (termination message)."""
    waiting: str = ""
    """Why it does not run yet: unschedulable, image not found…"""
    stuck: bool = False
    """It does not run because of something outside of the gang that somebody has to mend."""
    deleting: bool = False


@named_value
class RunRequest:
    """Everything a backend needs to render one attempt."""

    job: Manifest
    spec: TrainingJobSpec
    attempt: int
    agent: str | None
    baseline_uri: str | None
    baseline_sha256: str | None
    reward_policy: tuple[str, str] | None = None
    """Name and revision of the RewardPolicy that the run learns by; None: by the environment's rewards."""


class Backend(Protocol):
    """Renders attempts; the seam for TrainJob v2 and plain Jobs."""

    def render(self, request: RunRequest) -> Manifest:
        """A complete apply manifest, controlled by the TrainingJob."""


@named_value
class TrainingSnapshot(BaseSnapshot):
    """A TrainingJob and all that was found about it."""

    spec: TrainingJobSpec
    job: BackendJob | None = None
    ranks: tuple[Rank, ...] = ()
    run: TrainingRun | None = None
    run_error: str | None = None
    """Why the data plane did not answer."""
    backend_missing: str | None = None
    """Why the backend's kind cannot be used."""
    agent: Manifest | None = None
    agent_name: str | None = None
    pod_rules: PodRules = PodRules()
    """What the ranks' pods may have."""

    @property
    def recorded(self) -> int:
        """Attempts that status remembers."""
        return int(self.status.get("attempts") or 0)

    @property
    def attempts(self) -> int:
        """Attempts begun, counting one whose start was not recorded because the operator died."""
        return max(self.recorded, self.job.attempt + 1 if self.job else 0)

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The newest heartbeat of the attempt that runs now; older attempts say nothing about it."""
        beat = self.run.heartbeat if self.run else None
        return beat if beat and self.job and beat.attempt == self.job.attempt else None

    @property
    def has_data(self) -> bool:
        """The data plane holds something of a run of this name."""
        run = self.run
        return run is not None and not (run.heartbeat is None and run.checkpoint is None and run.manifest is None)

    def condition(self, type_: str) -> dict[str, Any]:
        """The live condition; empty when there is none."""
        found: Iterable[dict[str, Any]] = self.status.get("conditions") or ()
        return next((item for item in found if item.get("type") == type_), {})

    def holds(self, type_: str) -> bool:
        """The live condition is True."""
        return self.condition(type_).get("status") == "True"

    def since(self, field: str) -> float | None:
        """Seconds since a time in status; None when it is not set."""
        moment = times.parse(self.status.get(field))
        return (self.now - moment).total_seconds() if moment else None
