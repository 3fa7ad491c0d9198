"""A TrainingJob's status: what is carried on, what is new, and the conditions that say why."""

from dataclasses import dataclass
from typing import Any

from learnloop_api import names
from learnloop_api.wire.training import Manifest as Proof
from learnloop_api.wire.training import ReturnEstimate
from learnloop_common import foreign_text
from learnloop_operator.core import anomalies as anomaly_condition
from learnloop_operator.core import conditions, durations, times
from learnloop_operator.core.anomalies import watch
from learnloop_operator.core.plan import Manifest
from learnloop_operator.training import gates as evaluation_suite
from learnloop_operator.training.snapshot import TrainingSnapshot

PROGRESS_SECONDS = 2.0
"""Progress is written at most this often."""
DIGITS = 4
"""Decimals of a figure in a status; the manifest has them all."""
PHASES = {"starting": "Starting", "training": "Training", "evaluating": "Evaluating", "exporting": "Exporting"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusVerdict:
    """The job's state in terms of its conditions."""

    phase: str
    reason: str
    message: str
    ready: bool | None = None
    progressing: bool = True
    stalled: bool = False
    trained: bool | None = None
    validated: bool | None = None
    suspended: bool = False


def status(world: TrainingSnapshot, verdict: StatusVerdict, **fields: Any) -> Manifest:
    """The whole status: the live one, `fields` (None removes), progress when it is due, conditions."""
    generation = world.generation
    wanted = conditions.ready_triplet(
        ready=verdict.ready,
        progressing=verdict.progressing,
        stalled=verdict.stalled,
        reason=verdict.reason,
        message=verdict.message,
        generation=generation,
    )
    for type_, value in (("Trained", verdict.trained), ("Validated", verdict.validated)):
        state = conditions.UNKNOWN if value is None else conditions.TRUE if value else conditions.FALSE
        wanted.append(conditions.condition(type_, state, verdict.reason, verdict.message, generation))
    beat = world.heartbeat
    held = world.status.get("conditions") or ()
    if beat is not None and beat.returns:
        wanted += anomaly_condition.judged({"": watch(beat.returns)}, held, generation)
    suspended = conditions.TRUE if verdict.suspended else conditions.FALSE
    why = "Suspended" if verdict.suspended else "NotSuspended"
    wanted.append(conditions.condition("Suspended", suspended, why, "", generation))
    result = {
        **world.status,
        "totalSteps": world.spec.total_steps,
        **progress(world),
        **fields,
        "observedGeneration": generation,
        "phase": verdict.phase,
        "conditions": conditions.merge(held, wanted, world.time),
    }
    return {key: value for key, value in result.items() if value is not None}


def progress(world: TrainingSnapshot) -> dict[str, Any]:
    """Step, percent, ETA and return from the newest heartbeat; nothing when the last write was a moment ago."""
    beat = world.heartbeat
    if beat is None or _just_written(world):
        return {}
    fields: dict[str, Any] = {
        "step": beat.step,
        "progress": percent(beat.step, beat.total_steps),
        "eta": durations.text(beat.eta_seconds) if beat.eta_seconds is not None else None,
        "stepsPerSecond": round(beat.steps_per_second, 1),
        "worldSize": beat.world_size,
    }
    if beat.recent_return is not None and beat.recent_return.episodes:
        fields |= {"recentReturn": estimate(beat.recent_return), "return": interval(beat.recent_return)}
    return fields


def proven(proof: Proof) -> dict[str, Any]:
    """Fields that a verified manifest adds."""
    silent = proof.off_policy is not None and not proof.off_policy.verdict
    return {
        "step": proof.step,
        "progress": percent(proof.step, proof.total_steps),
        "eta": None,
        "worldSize": proof.world_size,
        "evaluation": None if silent else estimate(proof.evaluation),
        "baseline": estimate(proof.baseline),
        "return": "no verdict" if silent else interval(proof.evaluation),
        "artifact": {"uri": proof.artifact_uri, "sha256": proof.artifact_sha256},
        "validation": estimate(proof.validation) if proof.validation else None,
        "suite": evaluation_suite.suite_status(proof.suite) if proof.suite else None,
        "exports": [{"format": item.format, "uri": item.uri, "sha256": item.sha256} for item in proof.exports] or None,
    }


def percent(step: int, total: int) -> str:
    """Whole percent, rounded down: 100% only when everything is done."""
    return f"{min(100, 100 * step // max(1, total))}%"


def estimate(value: ReturnEstimate) -> dict[str, Any]:
    """ReturnStatus of a wire estimate."""
    return {
        "episodes": value.episodes,
        "mean": round(value.mean, DIGITS),
        "iqm": round(value.iqm, DIGITS),
        "ciLow": round(value.ci_low, DIGITS),
        "ciHigh": round(value.ci_high, DIGITS),
    }


def interval(value: ReturnEstimate) -> str:
    """e.g. 487.2 [481.0, 492.1]"""
    return foreign_text.interval(value.mean, value.ci_low, value.ci_high)


def lineage(world: TrainingSnapshot) -> dict[str, Any] | None:
    """Origin of the model; fixed when the run begins."""
    if world.status.get("lineage") or world.agent_name is None:
        return world.status.get("lineage")
    agent = world.agent or {}
    spec, state = agent.get("spec") or {}, agent.get("status") or {}
    # The agent's status still has the count of the pass before the one that triggered the run.
    noted = (world.object["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRAJECTORIES, "")
    result = {
        "learningAgent": world.agent_name,
        "rewardPolicy": (spec.get("rewardPolicyRef") or {}).get("name"),
        "rewardPolicyRevision": state.get("rewardPolicyRevision"),
        "trajectories": int(noted) if noted.isdecimal() else state.get("trajectories"),
    }
    return {key: value for key, value in result.items() if value is not None}


def _just_written(world: TrainingSnapshot) -> bool:
    # The API server itself remembers when our status last changed.
    for entry in world.object["metadata"].get("managedFields") or ():
        if entry.get("subresource") == "status" and entry.get("operation") == "Apply":
            moment = times.parse(entry.get("time"))
            if moment is not None and 0 <= (world.now - moment).total_seconds() < PROGRESS_SECONDS:
                return True
    return False
