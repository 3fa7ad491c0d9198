"""Studies: the snapshot, and the trials that Optuna orders."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_api.kinds.training.study import SearchDimension, Study
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training_request import RUNGS, StudyState, Trial
from learnloop_operator.core import conditions, plan, times
from learnloop_operator.training import run_cost, run_snapshot


def trial_name(job: str, number: int) -> str:
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
    seconds: float | None
    """Wall time, once it has ended."""
    step: int
    total_steps: int
    recent: float | None
    """Mean return of its newest training episodes."""
    message: str
    cost: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rung(self) -> int:
        """Tenths of its steps that are done and may be compared; 0: none, the last one is the end itself."""
        return min(RUNGS - 1, RUNGS * self.step // max(1, self.total_steps))


def job_of(body: plan.KubeObject) -> TrialJob:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    begun, ended = times.parse(status.get("startedAt")), times.parse(status.get("finishedAt"))
    return TrialJob(
        name=str(body["metadata"]["name"]),
        suspend=bool(spec.get("suspend")),
        suspended=conditions.find(status, "Suspended").get("status") == conditions.TRUE,
        finished=bool(status.get("finishedAt")),
        artifact=(status.get("artifact") or {}).get("sha256"),
        validation=status.get("validation"),
        seconds=(ended - begun).total_seconds() if begun and ended else None,
        step=int(status.get("step") or 0),
        total_steps=int(spec.get("totalSteps") or 1),
        recent=(status.get("recentReturn") or {}).get("mean"),
        message=str(conditions.find(status, "Ready").get("message", "")),
        cost=status.get("cost") or {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySnapshot(run_snapshot.TrainingSnapshot):
    """A TrainingJob with a study. `run` is the run of the best trial, once all of them have ended."""

    trials: Mapping[int, TrialJob] = field(default_factory=dict)
    """Live TrainingJobs of trials by number."""
    state: StudyState | None = None
    """The study in the data plane; None before it has begun."""
    state_error: str | None = None
    """Reason why the data plane did not answer."""

    @property
    def study(self) -> Study:
        assert self.spec.study is not None
        return self.spec.study

    @property
    def owner(self) -> str:
        return str(self.object["metadata"]["uid"])

    def refused(self, name: str) -> str:
        """Reason why the API server refused the trial of this name, as the last pass recorded it; "" if it did not."""
        ready = self.condition("Ready")
        message = str(ready.get("message", ""))
        about = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", message)
        return message if ready.get("reason") == "Refused" and about else ""


WORDS = {"true": True, "false": False}
LONGEST_NAME = 50


def trial_spec(spec: TrainingJobSpec, parameters: Mapping[str, Any], *, suspend: bool = False) -> dict[str, Any]:
    """The spec of one trial: the job's own, with these hyperparameters and without a study.

    The gates stay with the job. Raises pydantic.ValidationError when a value is out of bounds.
    """
    body = spec.to_kube()
    body.pop("study", None)
    body["hyperparameters"] = {**body["hyperparameters"], **parameters}
    body["gates"] = {"significant": False}
    evaluation = spec.evaluation
    body["evaluation"] = {
        **body["evaluation"],
        "validationEpisodes": max(evaluation.validation_episodes, evaluation.episodes),
    }
    body["suspend"] = suspend
    body.pop("deadlineSeconds", None)  # it is the study's: what is left of it no trial can know
    return TrainingJobSpec.model_validate(body).to_kube()


def takes(spec: TrainingJobSpec) -> dict[str, str]:
    """Hyperparameters of the job's algorithm: their names here and in Python."""
    return ALGORITHMS[spec.algorithm].fields


def problem(name: str, spec: TrainingJobSpec, *, priced: bool = True) -> str | None:
    """Reason why this study cannot be: field, value and fix in one sentence."""
    assert spec.study is not None
    if spec.trained_by != "own":
        problem = f"searches hyperparameters of engine own, and {spec.trained_by} trains {spec.algorithm}"
        return f"spec.study: {problem}; remove study, or leave engine out and choose an algorithm of own"
    longest = trial_name(name, spec.study.trials - 1)
    if len(longest) > LONGEST_NAME:
        short = LONGEST_NAME - len(longest) + len(name)
        return f"metadata.name: {name!r} is too long for a study, its trials are named {longest}; use at most {short}"
    cost, named = spec.study.cost, takes(spec)
    if cost and cost.measure == "money" and not priced:
        return "spec.study.cost.measure: money takes trainer.prices of the installation; set them, or use cpuHours"
    for dimension in spec.study.searched(named):
        parameter = dimension.parameter
        where = f"spec.study.space[{parameter}]"
        if parameter not in named:
            return f"{where}: {spec.algorithm} has no such hyperparameter; it has {', '.join(sorted(named))}"
        for value in corners(dimension):
            why = _refusal(spec, parameter, value)
            if why:
                return f"{where}: {value!r} {why}; correct the space"
    return None


def corners(dimension: SearchDimension) -> list[Any]:
    for bounds in (dimension.float_, dimension.int_):
        if bounds is not None:
            return [bounds.low, bounds.high]
    if dimension.choices is not None:
        return [WORDS.get(word, word) for word in dimension.choices]
    return [list(layers) for layers in dimension.layers or ()]


def _refusal(spec: TrainingJobSpec, parameter: str, value: Any) -> str:
    try:
        trial_spec(spec, {parameter: value})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"is refused: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""


DIGITS = 4


def fields(snapshot: StudySnapshot, proven: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Fields that a study adds to its TrainingJob's status; `proven`: the status with the best trial's proof."""
    trials = snapshot.state.trials if snapshot.state else []
    counts: Counter[str] = Counter(trial.state for trial in trials)
    best = best_trial(snapshot)
    study: dict[str, Any] = {
        "trials": len(trials),
        "running": counts["running"],
        "completed": counts["complete"],
        "pruned": counts["pruned"],
        "failed": counts["failed"],
    }
    front = [trials[number] for number in snapshot.state.front[:16]] if snapshot.state else []
    if front:
        study["front"] = [f"{trial_name(snapshot.name, one.number)}: {_figures(snapshot, one)}" for one in front]
    text = None
    if best is not None and best.value is not None:
        study |= {
            "bestTrial": trial_name(snapshot.name, best.number),
            "bestValue": round(best.value, DIGITS),
            "bestParameters": words(best),
        }
        text = f"best {best.value:.1f}"
    done = len(trials) - counts["running"]
    cost = run_cost.gained(_cost(snapshot), proven or {})
    return {"study": study, "progress": f"{100 * done // snapshot.study.trials}%", "return": text, "cost": cost}


def _cost(snapshot: StudySnapshot) -> Mapping[str, Any]:
    """Of all trials. A job that was deleted cost what its trial's end says, or, at work, what was counted before."""
    trials, jobs = snapshot.state.trials if snapshot.state else (), snapshot.trials
    spent = {trial.number: run_cost.from_wire(trial.spent) for trial in trials}
    total = run_cost.together((spent | {number: job.cost for number, job in jobs.items()}).values())
    before = snapshot.status.get("cost") or {}
    return max(total, before, key=lambda cost: (cost.get("gpuHours", 0.0), cost.get("cpuHours", 0.0)))


def sentence(snapshot: StudySnapshot) -> str:
    """e.g. 5 of 20 trials done (1 pruned), 2 running; best 487.2: t-3 with hidden [64, 64]"""
    trials = snapshot.state.trials if snapshot.state else []
    counts: Counter[str] = Counter(trial.state for trial in trials)
    best = best_trial(snapshot)
    done = len(trials) - counts["running"]
    aside = ", ".join(f"{counts[state]} {state}" for state in ("pruned", "failed") if counts[state])
    text = f"{done} of {snapshot.study.trials} trials done{f' ({aside})' if aside else ''}, {counts['running']} running"
    if best is None or best.value is None:
        return text
    return f"{text}; best {_figures(snapshot, best)}: {trial_name(snapshot.name, best.number)} with {words(best)}"[
        :1024
    ]


def _figures(snapshot: StudySnapshot, trial: Trial) -> str:
    """e.g. 487.2, or 487.2 at 0.0123 cpuHours"""
    cost = snapshot.study.cost
    return f"{trial.value:.1f}" + (f" at {trial.cost:.4g} {cost.measure}" if cost and trial.cost is not None else "")


def best_trial(snapshot: StudySnapshot) -> Trial | None:
    state = snapshot.state
    return None if state is None or state.best is None else state.trials[state.best]


def words(trial: Trial) -> str:
    """Hyperparameters for a human, e.g. learningRate 0.003, hidden [64, 64]."""
    shown = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {json.dumps(value)}"
        for name, value in sorted(trial.parameters.items())
    )
    return ", ".join(shown)[:1024]


@dataclass(slots=True)
class Orders:
    """Orders of one pass over all trials."""

    apply: list[plan.KubeObject] = field(default_factory=list)
    calls: list[plan.Call] = field(default_factory=list)
    events: list[plan.Notice] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """The states of trials whose end is reported in this pass."""


def path(job: str) -> str:
    return f"/api/v1/training/studies/{job}"


def manifest(snapshot: StudySnapshot, trial: Trial, *, suspend: bool) -> plan.KubeObject:
    return plan.child(
        snapshot.object,
        names.API_VERSION,
        "TrainingJob",
        trial_name(snapshot.name, trial.number),
        plan.standard_labels("training", {names.LABEL_STUDY: snapshot.name}),
        spec=trial_spec(snapshot.spec, trial.parameters, suspend=suspend),
    )


def tend(snapshot: StudySnapshot, trial: Trial, stopping: str | None, orders: Orders) -> None:
    """One running trial; `stopping`: why the whole study ends now."""
    name, job = trial_name(snapshot.name, trial.number), snapshot.trials.get(trial.number)
    refusal = snapshot.refused(name)
    if job is None and (stopping or refusal):
        _end(snapshot, trial, orders, "failed", refusal or stopping or "")
    elif job is None:
        orders.apply.append(manifest(snapshot, trial, suspend=False))
    elif job.finished:
        _keep(snapshot, trial, job, orders)
    elif trial.prune or stopping:
        if not job.suspend:
            orders.apply.append(manifest(snapshot, trial, suspend=True))
        elif job.suspended:
            why = stopping or f"return {job.recent or 0.0:.1f} at step {job.step} of {job.total_steps}"
            _end(snapshot, trial, orders, "pruned" if trial.prune else "failed", why)
    elif job.suspend:
        orders.apply.append(manifest(snapshot, trial, suspend=False))
    elif job.rung > trial.reported and job.recent is not None:
        message = {"rung": job.rung, "value": job.recent}
        orders.calls.append(plan.Call("PUT", f"{path(snapshot.name)}/trials/{trial.number}/progress", message))


def _keep(snapshot: StudySnapshot, trial: Trial, job: TrialJob, orders: Orders) -> None:
    """A trial that ended by itself: its objective, or why it has none."""
    value, wanted = (job.validation or {}).get(snapshot.study.objective), snapshot.study.cost
    cost = None
    if wanted is not None:
        cost = job.seconds if wanted.measure == "seconds" else job.cost.get(wanted.measure)
    if job.artifact is None or value is None:
        _end(snapshot, trial, orders, "failed", job.message or "it proved nothing")
    elif wanted is not None and cost is None:
        _end(snapshot, trial, orders, "failed", f"its {wanted.measure} are unknown")
    else:
        _end(snapshot, trial, orders, "complete", f"{value:.1f}", value, cost)


def _end(
    snapshot: StudySnapshot,
    trial: Trial,
    orders: Orders,
    state: str,
    why: str,
    value: float | None = None,
    cost: float | None = None,
) -> None:
    job = snapshot.trials.get(trial.number)
    spent = run_cost.to_wire(job.cost) if job else None
    message: dict[str, Any] = {"state": state, "value": value, "cost": cost, "spent": spent}
    orders.calls.append(plan.Call("PUT", f"{path(snapshot.name)}/trials/{trial.number}/result", message))
    orders.ended.append(state)
    name = trial_name(snapshot.name, trial.number)
    reasons = {"complete": ("Normal", "TrialCompleted"), "pruned": ("Normal", "TrialPruned")}
    kind, reason = reasons.get(state, ("Warning", "TrialFailed"))
    orders.events.append(plan.Notice(kind, reason, f"{name}: {why}"[:1024]))  # type: ignore[arg-type]
