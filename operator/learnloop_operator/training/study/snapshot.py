"""Snapshot for decisions about a study: the TrainingJob, its trials, and what the data plane knows of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from learnloop_api.kinds.study import Study
from learnloop_api.wire.training_request import RUNGS, StudyState
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training.snapshot import TrainingSnapshot


def trial_name(job: str, number: int) -> str:
    """The TrainingJob of a trial."""
    return f"{job}-t{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """A trial's TrainingJob, as far as its study goes by it."""

    name: str
    suspend: bool
    suspended: bool
    finished: bool
    artifact: str | None
    """Digest of its artifact; None when it proved nothing."""
    validation: Mapping[str, float] | None
    """Its return on validation seeds: mean, iqm."""
    step: int
    total_steps: int
    recent: float | None
    """Mean return of its newest training episodes."""
    message: str

    @property
    def rung(self) -> int:
        """Tenths of its steps that are done and may be compared; 0: none, the last one is the end itself."""
        return min(RUNGS - 1, RUNGS * self.step // max(1, self.total_steps))


def job_of(body: Manifest) -> TrialJob:
    """A Job of a live TrainingJob."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    held = {item["type"]: item for item in status.get("conditions") or ()}
    return TrialJob(
        name=str(body["metadata"]["name"]),
        suspend=bool(spec.get("suspend")),
        suspended=held.get("Suspended", {}).get("status") == "True",
        finished=bool(status.get("finishedAt")),
        artifact=(status.get("artifact") or {}).get("sha256"),
        validation=status.get("validation"),
        step=int(status.get("step") or 0),
        total_steps=int(spec.get("totalSteps") or 1),
        recent=(status.get("recentReturn") or {}).get("mean"),
        message=str(held.get("Ready", {}).get("message", "")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySnapshot(TrainingSnapshot):
    """A TrainingJob with a study. `run` is the run of the best trial, once all of them have ended."""

    trials: Mapping[int, TrialJob] = field(default_factory=dict)
    """Live TrainingJobs of trials by number."""
    state: StudyState | None = None
    """The study in the data plane; None before it has begun."""
    state_error: str | None = None
    """Why the data plane did not answer."""

    @property
    def study(self) -> Study:
        """The study in the spec."""
        assert self.spec.study is not None
        return self.spec.study

    @property
    def owner(self) -> str:
        """Owner of the study."""
        return str(self.object["metadata"]["uid"])

    def refused(self, name: str) -> str:
        """Why the API server would not have the trial of this name, as the last pass has recorded it; "" if it did."""
        ready: dict[str, Any] = self.condition("Ready")
        message = str(ready.get("message", ""))
        about = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", message)
        return message if ready.get("reason") == "Refused" and about else ""
