"""A namespace's limits of training runs, at a time and a day. GPUs, shares and preemption are the business of Kueue.

The turn of a run stands in its status before its gang is made, so an operator that dies in between admits no other run
to the same place.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest, Notice, Plan
from learnloop_operator.core.times import parse
from learnloop_operator.training.attempts import NOW, told
from learnloop_operator.training.backends import Backends
from learnloop_operator.training.snapshot import TrainingSnapshot, Turn
from learnloop_operator.training.status import StatusVerdict, status

LOOK_AGAIN = 5.0
Body = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name of a TrainingJob."""


class Quota(BaseModel):
    """Limits of one namespace; 0 means unlimited."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)

    runs: int = Field(default=0, ge=0, le=1_000_000)
    runs_per_day: int = Field(default=0, ge=0, le=1_000_000)
    """Runs begun since midnight UTC."""


class Quotas(BaseModel):
    """Limits of every namespace, and of some namespaces instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Quota = Quota()
    namespaces: Mapping[str, Quota] = Field(default_factory=dict)

    def of(self, namespace: str) -> Quota:
        return self.namespaces.get(namespace, self.namespace)


def turn_of(
    live: Body, jobs: Iterable[Body], agents: Iterable[Body], quota: Quota, now: datetime, admitted: frozenset[Key]
) -> Turn | None:
    """The turn of a run among those of its namespace; None where no limit applies to it.

    The highest priority goes first; of equal ones the oldest run. Waiting runs ahead count as if they ran, so parallel
    passes never admit two runs to one place.

    Args:
        jobs: the namespace's TrainingJobs.
        agents: the namespace's LearningAgents, which remember today's runs after their deletion.
        admitted: runs that were admitted a moment ago and whose status does not show it yet.
    """
    if not (quota.runs or quota.runs_per_day) or not _counts(live):
        return None
    key, today = _key(live), now.date().isoformat()
    if key in admitted:
        return Turn(place=1, waiting=1)
    bodies = {_key(body): body for body in (*jobs, live)}
    counted = {other: body for other, body in bodies.items() if _counts(body)}
    running = {other for other, body in counted.items() if other in admitted or _admitted(body)} - {key}
    queue = sorted((other for other in counted if other not in running), key=lambda other: _order(counted[other]))
    place = queue.index(key) + 1
    begun = _begun_today(bodies.values(), agents, today)
    why = ""
    if quota.runs and len(running) + place > quota.runs:
        why = f"namespace {key[0]} runs {len(running)} of {quota.runs} trainings"
    elif quota.runs_per_day and not _attempted(live) and begun + place > quota.runs_per_day:
        why = f"namespace {key[0]} has begun {begun} of {quota.runs_per_day} runs of today (UTC)"
    return Turn(place=place, waiting=len(queue), why=why)


def await_turn(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """No gang yet, and none is made before its turn."""
    turn = world.turn
    if turn is None or world.job is not None or world.ranks or (world.status.get("turn") or {}).get("admittedAt"):
        return None
    if not turn.why:
        waited = world.since("queuedAt") or 0.0
        message = "its turn has come" + (f" after {times.text(waited)} in the queue" if waited >= 1 else "")
        state = _queued(world, "TurnCame", message, {"admittedAt": world.time})
        return Plan(status=state, events=(Notice("Normal", "TurnCame", message),), requeue_after=NOW)
    message = f"place {turn.place} of {turn.waiting} in the queue: {turn.why}"
    state = _queued(world, "AwaitingTurn", message, {"place": turn.place, "waiting": turn.waiting})
    return Plan(status=state, events=told(world, "AwaitingTurn", message), requeue_after=LOOK_AGAIN)


def _queued(world: TrainingSnapshot, reason: str, message: str, turn: dict[str, Any]) -> Manifest:
    # Until the gang runs again, a resume stays free of charge.
    verdict = StatusVerdict(phase="Queued", reason=reason, message=message, suspended=world.holds("Suspended"))
    queued = world.status.get("queuedAt") or world.time
    return status(world, verdict, attempts=world.attempts or None, queuedAt=queued, eta=None, turn=turn)


def _counts(body: Body) -> bool:
    """True if the run takes or wants a slot: not when finished, suspended, a study, or in a queue of Kueue."""
    spec, ended = body.get("spec") or {}, (body.get("status") or {}).get("finishedAt")
    gone = ended or body["metadata"].get("deletionTimestamp") or spec.get("suspend")
    return not gone and spec.get("study") is None and spec.get("queue") is None


def _admitted(body: Body) -> bool:
    status = body.get("status") or {}
    turn = status.get("turn") or {}
    return bool(turn.get("admittedAt") or (not turn and status.get("startedAt")))


def _attempted(body: Body) -> bool:
    return bool((body.get("status") or {}).get("attempts"))


def _order(body: Body) -> tuple[int, str, str]:
    metadata, waits = body["metadata"], (body.get("status") or {}).get("queuedAt")
    since = waits or metadata.get("creationTimestamp") or ""
    return -int((body.get("spec") or {}).get("priority", 50)), str(since), str(metadata["name"])


def _begun_today(jobs: Iterable[Body], agents: Iterable[Body], today: str) -> int:
    """Runs begun since midnight UTC: those of agents, less the ones that still wait, and those made by hand."""
    begun = 0
    for agent in agents:
        status = agent.get("status") or {}
        day = status.get("trainingDay") or {}
        if day.get("date") == today:
            begun += int(status.get("trainings") or 0) - int(day["first"]) + 1
    for job in jobs:
        owned = any(item.get("kind") == "LearningAgent" for item in job["metadata"].get("ownerReferences") or ())
        waits = _counts(job) and not _admitted(job) and not _attempted(job)
        if owned:
            begun -= waits and _is_of(job["metadata"].get("creationTimestamp"), today)
        else:
            status = job.get("status") or {}
            begun += _is_of((status.get("turn") or {}).get("admittedAt") or status.get("startedAt"), today)
    return begun


def _is_of(moment: str | None, day: str) -> bool:
    result = parse(moment)
    return result is not None and result.date().isoformat() == day


def _key(body: Body) -> Key:
    return str(body["metadata"]["namespace"]), str(body["metadata"]["name"])
