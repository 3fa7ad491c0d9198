"""A TrainingJob's status: what is carried on, what is new, and the conditions that say why."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire import training, training_request
from learnloop_common import untrusted_text
from learnloop_operator.core import anomalies, conditions, times
from learnloop_operator.core.plan import Announcement, BaseSnapshot, Call, KubeObject
from learnloop_operator.training import proof_gates, run_cost, run_snapshot

DIGITS = 4
"""Decimals of a figure in a status; the proof has them all."""
PHASES = {
    "starting": "Starting",
    "training": "Training",
    "evaluating": "Evaluating",
    "exporting": "Exporting",
    "done": "Evaluating",
}
"""By a heartbeat's phase. What a run that is done has stored is looked at next."""


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


def status(snapshot: run_snapshot.TrainingSnapshot, verdict: StatusVerdict, **fields: Any) -> KubeObject:
    """The whole status: the live one, `fields` (None removes), progress when it is due, conditions."""
    generation = snapshot.generation
    reason, message = verdict.reason, verdict.message
    wanted = conditions.ready_triplet(
        snapshot, reason, message, ready=verdict.ready, progressing=verdict.progressing, stalled=verdict.stalled
    )
    for type_, state in (("Trained", verdict.trained), ("Validated", verdict.validated)):
        live = snapshot.condition(type_)
        stays = state is None and live and snapshot.updated is not None  # of the last update that was judged
        wanted.append({**live} if stays else conditions.condition(type_, state, reason, message, generation))
    beat = snapshot.heartbeat
    held = snapshot.status.get("conditions") or ()
    if beat is not None and beat.returns:
        wanted += anomalies.judged({"": anomalies.find(beat.returns)}, held, generation)
    why = "Suspended" if verdict.suspended else "NotSuspended"
    wanted.append(conditions.condition("Suspended", verdict.suspended, why, "", generation))
    result = {
        **snapshot.status,
        "totalSteps": snapshot.spec.total_steps,
        **progress(snapshot),
        "cost": _cost(snapshot, verdict.phase, fields),
        **fields,
        "observedGeneration": generation,
        "phase": verdict.phase,
        "conditions": conditions.merge(held, wanted, snapshot.time),
    }
    return {key: value for key, value in result.items() if value is not None}


def _cost(snapshot: run_snapshot.TrainingSnapshot, phase: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    before, pods = snapshot.status, snapshot.ranks
    cost = run_cost.counted(
        before.get("cost") or {},
        [rank.reserved for rank in pods if rank.reserved],
        times.parse(snapshot.object["metadata"].get("creationTimestamp")),
        times.parse_time(snapshot.time),
        snapshot.prices,
        due=phase != before.get("phase") or any(rank.deleting for rank in pods),
    )
    return run_cost.gained(cost, {**before, **fields})


def progress(snapshot: run_snapshot.TrainingSnapshot) -> dict[str, Any]:
    """Step, percent, ETA and return from the newest heartbeat; nothing without one."""
    beat = snapshot.heartbeat
    if beat is None:
        return {}
    fields: dict[str, Any] = {
        "step": beat.step,
        "totalSteps": beat.total_steps,
        "progress": percent(beat.step, beat.total_steps),
        "eta": times.duration(beat.eta_seconds) if beat.eta_seconds is not None else None,
        "stepsPerSecond": round(beat.steps_per_second, 1),
        "worldSize": beat.world_size,
    }
    if beat.recent_return is not None and beat.recent_return.episodes:
        fields |= {"recentReturn": estimate(beat.recent_return), "return": interval(beat.recent_return)}
    return fields


def proven(proof: training.Proof) -> dict[str, Any]:
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
        "costs": [cost(one) for one in proof.costs] or None,
        "validation": estimate(proof.validation) if proof.validation else None,
        "suite": proof_gates.suite_status(proof.suite) if proof.suite else None,
        "exports": [{"format": item.format, "uri": item.uri, "sha256": item.sha256} for item in proof.exports] or None,
    }


def percent(step: int, total: int) -> str:
    """Whole percent, rounded down: 100% only when everything is done."""
    return f"{min(100, 100 * step // max(1, total))}%"


def estimate(value: training.ReturnEstimate) -> dict[str, Any]:
    return {
        "episodes": value.episodes,
        "mean": round(value.mean, DIGITS),
        "iqm": round(value.iqm, DIGITS),
        "ciLow": round(value.ci_low, DIGITS),
        "ciHigh": round(value.ci_high, DIGITS),
    }


def cost(value: training.Cost) -> dict[str, Any]:
    limit = {} if value.maximum is None else {"maximum": value.maximum}
    return {"name": value.name, "mean": round(value.mean, DIGITS)} | limit


def interval(value: training.ReturnEstimate) -> str:
    """e.g. 487.2 [481.0, 492.1]"""
    return untrusted_text.interval(value.mean, value.ci_low, value.ci_high)


def lineage(snapshot: run_snapshot.TrainingSnapshot, *, fresh: bool = False) -> dict[str, Any] | None:
    """Origin of the model; fixed when the run begins. `fresh`: as an update would begin now."""
    if (snapshot.status.get("lineage") and not fresh) or snapshot.agent_name is None:
        return snapshot.status.get("lineage")
    agent = snapshot.agent or {}
    spec, state = agent.get("spec") or {}, agent.get("status") or {}
    # The agent's status still has the count of the pass before the one that triggered the run.
    noted = (snapshot.object["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRAJECTORIES, "")
    result = {
        "learningAgent": snapshot.agent_name,
        "rewardPolicy": (spec.get("rewardPolicyRef") or {}).get("name"),
        "rewardPolicyRevision": state.get("rewardPolicyRevision"),
        "trajectories": int(noted) if noted.isdecimal() else state.get("trajectories"),
    }
    return {key: value for key, value in result.items() if value is not None}


NEWS_SECONDS = 3600.0
"""A new leader repeats ends that are not older; the data plane ignores those that it has."""


def announcements(
    snapshot: BaseSnapshot,
    state: KubeObject,
    spec: TrainingJobSpec,
    agent: str | None,
    last_heartbeat: datetime | None = None,
) -> tuple[Announcement, ...]:
    """The news in a TrainingJob's status; none while heartbeats tell all there is.

    Args:
        last_heartbeat: of the run's newest heartbeat, of any attempt: what tells one wait from the one before.
    """
    ended = times.parse(state.get("finishedAt"))
    if ended is not None:
        fresh = times.seconds_since(state.get("finishedAt"), snapshot.now) <= NEWS_SECONDS
        return (_ended(snapshot, state, spec, agent),) if fresh else ()
    # A run that has made way, or lost its admission, is queued again: heartbeats would leave it at "running".
    waits = state.get("queuedAt") or not snapshot.status.get("startedAt")
    if snapshot.deleting or not waits:
        return ()
    message = _status_call(snapshot, state, spec, agent, phase="queued", status="queued", at=times.stamp(snapshot.now))
    return (replace(message, identity=f"{message.identity} after {last_heartbeat or 'nothing'}"),)


def _ended(snapshot: BaseSnapshot, state: KubeObject, spec: TrainingJobSpec, agent: str | None) -> Announcement:
    ready = conditions.find(state, "Ready")
    passed = ready.get("status") == "True"
    proven = state.get("artifact") is not None
    return _status_call(
        snapshot,
        state,
        spec,
        agent,
        phase="validated" if passed else "rejected" if proven else "failed",
        status="completed" if passed else "failed",
        evaluation=_estimate(state.get("evaluation")),
        baseline=_estimate(state.get("baseline")),
        gates=[
            {"name": gate["name"], "passed": gate["passed"], "message": gate["message"]}
            for gate in state.get("gates") or ()
        ],
        artifact=state.get("artifact"),
        cost=run_cost.to_wire(state.get("cost")),
        error=None if passed else {"reason": ready.get("reason", "Failed"), "message": _message(state)},
        at=state["finishedAt"],
    )


def _status_call(
    snapshot: BaseSnapshot, state: KubeObject, spec: TrainingJobSpec, agent: str | None, *, phase: str, **fields: object
) -> Announcement:
    step, total = int(state.get("step") or 0), spec.total_steps
    event = training_request.TrainingStatus.model_validate(
        {
            "job": snapshot.name,
            "job_uid": snapshot.object["metadata"].get("uid"),
            "agent": agent,
            "attempt": max(0, int(state.get("attempts") or 0) - 1),
            "step": min(step, total),
            "total_steps": total,
            "progress": min(1.0, step / total),
            "world_size": int(state.get("worldSize") or 1 + spec.workers),
            "steps_per_second": float(state.get("stepsPerSecond") or 0.0),
            "message": _message(state),
            "phase": phase,
            **fields,
        }
    )
    path = f"/api/v1/training/runs/{snapshot.name}/status"
    return Announcement(Call("PUT", path, event.model_dump(mode="json")), f"{event.job_uid} {phase}")


def _message(state: KubeObject) -> str:
    return str(conditions.find(state, "Ready").get("message", ""))[:1024]


def _estimate(result: KubeObject | None) -> KubeObject | None:
    if result is None:
        return None
    return {
        "episodes": result["episodes"],
        "mean": result["mean"],
        "iqm": result["iqm"],
        "ci_low": result["ciLow"],
        "ci_high": result["ciHigh"],
    }
