"""What to do about one trial that runs: make it, compare it, stop it, or keep its end."""

from dataclasses import dataclass, field
from typing import Any

from learnloop_api import names
from learnloop_api.wire.study import Trial
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.plan import Call, Manifest, Notice
from learnloop_operator.training.study.search_space import trial_spec
from learnloop_operator.training.study.snapshot import StudySnapshot, TrialJob, trial_name


@dataclass(slots=True)
class Orders:
    """What one pass over all trials wants done."""

    apply: list[Manifest] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    events: list[Notice] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """The states of trials whose end is told in this pass."""


def path(job: str) -> str:
    """The study in the data plane's REST contract."""
    return f"/api/v1/training/studies/{job}"


def manifest(world: StudySnapshot, trial: Trial, *, suspend: bool) -> Manifest:
    """The TrainingJob of a trial."""
    return child(
        world.object,
        api_version=names.API_VERSION,
        kind="TrainingJob",
        name=trial_name(world.name, trial.number),
        labels=standard_labels("training", {names.LABEL_STUDY: world.name}),
        spec=trial_spec(world.spec, trial.parameters, suspend=suspend),
    )


def tend(world: StudySnapshot, trial: Trial, stopping: str | None, orders: Orders) -> None:
    """One running trial; `stopping`: why the whole study ends now."""
    name, job = trial_name(world.name, trial.number), world.trials.get(trial.number)
    refusal = world.refused(name)
    if job is None and (stopping or refusal):
        _end(world, trial, orders, "failed", refusal or stopping or "")
    elif job is None:
        orders.apply.append(manifest(world, trial, suspend=False))
    elif job.finished:
        _keep(world, trial, job, orders)
    elif trial.prune or stopping:
        if not job.suspend:
            orders.apply.append(manifest(world, trial, suspend=True))
        elif job.suspended:
            why = stopping or f"return {job.recent or 0.0:.1f} at step {job.step} of {job.total_steps}"
            _end(world, trial, orders, "pruned" if trial.prune else "failed", why)
    elif job.suspend:
        orders.apply.append(manifest(world, trial, suspend=False))
    elif job.rung > trial.reported and job.recent is not None:
        told = {"rung": job.rung, "value": job.recent}
        orders.calls.append(Call("PUT", f"{path(world.name)}/trials/{trial.number}/progress", told))


def _keep(world: StudySnapshot, trial: Trial, job: TrialJob, orders: Orders) -> None:
    """A trial that ended by itself: its objective, or why it has none."""
    value = (job.validation or {}).get(world.study.objective)
    if job.artifact is None or value is None:
        _end(world, trial, orders, "failed", job.message or "it proved nothing")
    else:
        _end(world, trial, orders, "complete", f"{value:.1f}", value)


def _end(world: StudySnapshot, trial: Trial, orders: Orders, state: str, why: str, value: float | None = None) -> None:
    told: dict[str, Any] = {"state": state, "value": value}
    orders.calls.append(Call("PUT", f"{path(world.name)}/trials/{trial.number}/result", told))
    orders.ended.append(state)
    name = trial_name(world.name, trial.number)
    reasons = {"complete": ("Normal", "TrialCompleted"), "pruned": ("Normal", "TrialPruned")}
    kind, reason = reasons.get(state, ("Warning", "TrialFailed"))
    orders.events.append(Notice(kind, reason, f"{name}: {why}"[:1024]))  # type: ignore[arg-type]
