"""Where a run is, from "queued" to its verdict: subject `agent.rl.training.status.v1.<namespace>.<job>`."""

from typing import Literal

from pydantic import Field

from learnloop_api.wire.base import MOST, Sentence, Sha256, WireModel
from learnloop_api.wire.training import Heartbeat, Interval, ReturnEstimate, RunProgress


class TrainedArtifact(WireModel):
    """The policy that a run made."""

    uri: str = Field(max_length=2048)
    sha256: Sha256


class GateVerdict(WireModel):
    """What one gate said."""

    name: str = Field(max_length=1024)
    passed: bool
    message: Sentence = Field(max_length=1024, description="the numbers compared")


class RunError(WireModel):
    """Why a run failed."""

    reason: Sentence = Field(max_length=1024, description="one CamelCase word, as in the TrainingJob's Ready condition")
    message: Sentence = Field(max_length=1024, description="one sentence, with the fix where somebody can mend it")


class TrainingStatus(RunProgress):
    """One look at a run: told as it is queued, with each heartbeat, and with its verdict."""

    phase: Literal[
        "queued", "starting", "training", "evaluating", "exporting", "done", "failed", "validated", "rejected"
    ] = Field(description="done: proven, the gates are not asked yet; rejected: a gate refused the proof")
    status: Literal["queued", "running", "completed", "failed"] = Field(
        description="completed and failed are final; an attempt that failed and is tried again is still running"
    )
    job_uid: str | None = Field(default=None, max_length=64, description="tells apart jobs of the same name")
    progress: float = Field(ge=0, le=1, description="share of the steps done")
    place: int | None = Field(
        default=None, ge=1, le=MOST, description="in the queue, from 1; null: unknown, or not queued"
    )
    evaluation: ReturnEstimate | None = Field(default=None, description="the policy on held-out episodes")
    baseline: ReturnEstimate | None = Field(default=None, description="the serving policy on the same episodes")
    difference: Interval | None = Field(default=None, description="evaluation less baseline, by episode")
    gates: list[GateVerdict] = Field(default_factory=list, max_length=16)
    artifact: TrainedArtifact | None = None
    error: RunError | None = None


def of_heartbeat(beat: Heartbeat) -> TrainingStatus:
    """A heartbeat as an event."""
    share = min(1.0, beat.step / beat.total_steps)
    return TrainingStatus.model_validate({**dict(beat), "status": "running", "progress": share})
