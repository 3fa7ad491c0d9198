"""Events of a run for the data plane, besides its heartbeats: that it is queued, and how it ended."""

from dataclasses import replace
from datetime import datetime

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training_request import TrainingStatus
from learnloop_operator.core.plan import Announcement, Call, Manifest
from learnloop_operator.core.snapshot import BaseSnapshot
from learnloop_operator.core.times import parse, seconds_since, stamp

NEWS_SECONDS = 3600.0
"""A new leader repeats ends that are not older; the data plane ignores those that it has."""


def announcements(
    world: BaseSnapshot,
    state: Manifest,
    spec: TrainingJobSpec,
    agent: str | None,
    last_heard: datetime | None = None,
) -> tuple[Announcement, ...]:
    """The news in a TrainingJob's status; none while heartbeats tell all there is.

    Args:
        last_heard: of the run's newest heartbeat, of any attempt: what tells one wait from the one before.
    """
    ended = parse(state.get("finishedAt"))
    if ended is not None:
        fresh = seconds_since(state.get("finishedAt"), world.now) <= NEWS_SECONDS
        return (_ended(world, state, spec, agent),) if fresh else ()
    # A run that has made way, or lost its admission, is queued again: heartbeats would leave it at "running".
    waits = state.get("queuedAt") or not world.status.get("startedAt")
    if world.deleting or not waits:
        return ()
    place = (state.get("turn") or {}).get("place")
    message = _told(world, state, spec, agent, phase="queued", status="queued", place=place, at=stamp(world.now))
    return (replace(message, identity=f"{message.identity} after {last_heard or 'nothing'}"),)


def _ended(world: BaseSnapshot, state: Manifest, spec: TrainingJobSpec, agent: str | None) -> Announcement:
    ready = _ready(state)
    passed = ready.get("status") == "True"
    proven = state.get("artifact") is not None
    return _told(
        world,
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
        error=None if passed else {"reason": ready.get("reason", "Failed"), "message": _message(state)},
        at=state["finishedAt"],
    )


def _told(
    world: BaseSnapshot, state: Manifest, spec: TrainingJobSpec, agent: str | None, *, phase: str, **fields: object
) -> Announcement:
    step, total = int(state.get("step") or 0), spec.total_steps
    event = TrainingStatus.model_validate(
        {
            "job": world.name,
            "job_uid": world.object["metadata"].get("uid"),
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
    path = f"/api/v1/training/runs/{world.name}/status"
    return Announcement(Call("PUT", path, event.model_dump(mode="json")), f"{event.job_uid} {phase}")


def _ready(state: Manifest) -> Manifest:
    return next((item for item in state.get("conditions") or () if item["type"] == "Ready"), {})


def _message(state: Manifest) -> str:
    return str(_ready(state).get("message", ""))[:1024]


def _estimate(result: Manifest | None) -> Manifest | None:
    if result is None:
        return None
    return {
        "episodes": result["episodes"],
        "mean": result["mean"],
        "iqm": result["iqm"],
        "ci_low": result["ciLow"],
        "ci_high": result["ciHigh"],
    }
