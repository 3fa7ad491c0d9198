"""Snapshot for decisions about a TrainingJob, without any backend's vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from learnloop_api.kinds import language_model, model_deployment, training_job
from learnloop_api.wire.training import Heartbeat, TrainingRun
from learnloop_operator.core import allowed_pods, artifacts, conditions, plan, times
from learnloop_operator.training.run_cost import Prices, Reserved

CONFIGURATION_ERROR = 2
"""Exit code of the trainer for what no retry can heal."""
CLOCK_GRAIN = 1.0
"""Times in a status have whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendJob:
    """The object that runs the gang of one attempt."""

    ref: plan.ObjectRef
    attempt: int
    """Number from 0, as in the trainer's heartbeats."""
    created: datetime
    workers: int | None = None
    """Number of workers it was made with; None: unknown."""
    state: Literal["active", "succeeded", "failed"] = "active"
    finished: datetime | None = None
    message: str = ""
    trouble: str = ""
    """Reason why its pods cannot be made, in the words of the component that refuses them."""
    has_status: bool = True
    """Its controller has written a status."""
    queued: bool = False
    """Somebody holds it back: a queue, or a person. Its pods are gone or were never made."""
    disrupted: str = ""
    """Message of its controller if it failed because a rank lost its node."""
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One pod of the gang."""

    name: str
    created: datetime
    running: bool = False
    started: datetime | None = None
    """Start time of its container; of the engine, where that started later."""
    exit_code: int | None = None
    message: str = ""
    """The trainer's own last sentence (termination message)."""
    waiting: str = ""
    """Reason why it does not run yet: unschedulable, image not found…"""
    stuck: bool = False
    """Cause outside the gang that somebody has to fix before it runs; of one that runs, the cause is its engine's."""
    lost_engine: str = ""
    """Reason why the engine next to it ended, where the trainer should have seen that long ago."""
    disrupted: str = ""
    """Reason why its node was taken away from it: preemption, a drain, a lost node. Not its own doing."""
    deleting: bool = False
    reserved: Reserved | None = None
    """Its cost; None before a node has taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Input of a backend for one attempt."""

    job: plan.KubeObject
    spec: training_job.TrainingJobSpec
    attempt: int
    agent: str | None
    baseline_uri: str | None
    baseline_sha256: str | None
    reward_policy: tuple[str, str] | None = None
    """Name and revision of the RewardPolicy that the run learns by; None: by the environment's rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSnapshot(plan.BaseSnapshot):
    """A TrainingJob and all that was found about it."""

    spec: training_job.TrainingJobSpec
    job: BackendJob | None = None
    ranks: tuple[Rank, ...] = ()
    run: TrainingRun | None = None
    run_error: str | None = None
    """Reason why the data plane did not answer."""
    installed: frozenset[str] = frozenset()
    """Backends whose kind the cluster has, of those that were looked for."""
    queue_missing: str = ""
    """Reason why spec.queue cannot work here."""
    queue_says: str = ""
    """Reason why the gang waits, in the words of its Workload."""
    agent: plan.KubeObject | None = None
    agent_name: str | None = None
    deployment: model_deployment.ModelDeploymentStatus | None = None
    """Status of the agent's ModelDeployment; looked for where an attempt may begin."""
    pod_rules: allowed_pods.PodRules = field(default_factory=allowed_pods.PodRules)
    """Rules for the ranks' pods."""
    prices: Prices | None = None

    @property
    def baseline(self) -> tuple[str | None, str | None]:
        """Address and digest of the model that a run begins with and is compared with.

        It is the newest policy that is to serve the agent's users, and where that was rolled back the one that serves
        them. Without one it is the base model, or none: then the trainer compares with uniform random actions.
        """
        model = ((self.agent or {}).get("status") or {}).get("model") or {}
        uri, digest, served = model.get("uri"), model.get("sha256"), self.deployment
        if served and served.stable and artifacts.rolled_back(served.blocked_revisions, uri, digest):
            return served.stable.uri, served.stable.sha256
        if uri:
            return str(uri), digest
        spoken = self.spec.data.language_model
        return (language_model.base_alone(spoken), spoken.base.sha256) if spoken is not None else (None, None)

    @property
    def recorded(self) -> int:
        return int(self.status.get("attempts") or 0)

    @property
    def updated(self) -> int | None:
        """Newest update that was judged, of a run whose rank stays; None: not even the run itself."""
        return self.status.get("update")

    @property
    def attempts(self) -> int:
        """Attempts begun, counting one whose start was not recorded because the operator died."""
        return max(self.recorded, self.job.attempt + 1 if self.job else 0)

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The newest heartbeat of the attempt that runs now; older attempts say nothing about it."""
        beat, age = (self.run.heartbeat, self.run.heartbeat_age_seconds) if self.run else (None, None)
        if beat is None or self.job is None or beat.attempt != self.job.attempt:
            return None
        # An attempt that was suspended, resized or preempted goes on under its number, and says nothing yet.
        begun = self.since("attemptStartedAt")
        return None if begun is not None and age is not None and age > begun + CLOCK_GRAIN else beat

    @property
    def worked_seconds(self) -> float | None:
        """Wall time since the start or the last resume, less what was spent in a queue."""
        spent = self.since("startedAt")
        return None if spent is None else max(0.0, spent - (self.since("queuedAt") or 0.0))

    @property
    def has_data(self) -> bool:
        """The data plane holds something of a run of this name."""
        run = self.run
        return run is not None and not (run.heartbeat is None and run.checkpoint is None and run.proof is None)

    def condition(self, type_: str) -> Mapping[str, Any]:
        return conditions.find(self.status, type_)

    def holds(self, type_: str) -> bool:
        return self.condition(type_).get("status") == conditions.TRUE

    def since(self, field: str) -> float | None:
        """Seconds since a time in status; None when it is not set."""
        moment = times.parse(self.status.get(field))
        return (self.now - moment).total_seconds() if moment else None
