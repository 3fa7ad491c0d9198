"""TrainingJobs as the scheduler sees them, and what it says to one of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Any

from learnloop_api import names
from learnloop_operator.core.coordination.quotas import Quotas
from learnloop_operator.core.coordination.scheduler import Key, Schedule, WantedRun, hopes, schedule, waits_for_a_day
from learnloop_operator.core.coordination.waiting_times import waiting_times
from learnloop_operator.core.quantities import quantity
from learnloop_operator.core.times import parse, seconds_since

Body = Mapping[str, Any]
NOTHING_SEEN: Mapping[str, int] = MappingProxyType({})
GPU = "/gpu"
"""How the extended resources of GPUs end: nvidia.com/gpu, amd.com/gpu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one run is told."""

    admitted: bool = False
    place: int | None = None
    """In the queue, from 1."""
    waiting: int = 0
    """How many stand in the queue."""
    why: str = ""
    """What it waits for, with figures."""
    seconds: float | None = None
    """Until it begins, as far as that can be told."""
    way_for: Key | None = None
    """The run of higher priority that it makes way for."""


def turn_of(
    key: Key,
    jobs: Iterable[Body],
    agents: Iterable[Body],
    quotas: Quotas,
    now: datetime,
    promised: frozenset[Key],
    seen: Mapping[str, int] = NOTHING_SEEN,
) -> Turn:
    """What the scheduler says to the run `key`.

    Args:
        jobs: all TrainingJobs.
        agents: all LearningAgents, which remember the runs of today that are deleted.
        promised: runs that were told to begin a moment ago and whose status does not say so yet.
        seen: how many runs of each namespace somebody saw begin today, those that were deleted since included.
    """
    found = {run.key: (run, body) for body in jobs if (run := wanted(body, now, promised)) is not None}
    begun = begun_today(found.values(), agents, jobs, now, seen)
    made = schedule([run for run, _ in found.values()], quotas, begun)
    if key in made.why:
        seconds = _seconds_of(key, found, made, quotas, now)
        return Turn(place=made.place(key), waiting=len(made.order), why=made.why[key], seconds=seconds)
    return Turn(admitted=key in made.admitted, way_for=made.preempted.get(key))


def _seconds_of(
    key: Key, found: Mapping[Key, tuple[WantedRun, Body]], made: Schedule, quotas: Quotas, now: datetime
) -> float | None:
    """Until the run `key` begins. Who waits for another day, or for more than there will ever be, takes no place."""
    order = [other for other in made.order if hopes(found[other][0], quotas)]
    if key not in order:
        return None
    if waits_for_a_day(made.why[key]):
        of_cluster = made.why[key].startswith("the cluster")
        quota = quotas.cluster if of_cluster else quotas.of(key[0])
        before = [other for other in order[: order.index(key)] if made.why[other] == made.why[key]]
        midnight = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
        days = len(before) // (quota.runs_per_day or 1)
        return (midnight - now).total_seconds() + timedelta(days=days).total_seconds()
    today = [other for other in order if not waits_for_a_day(made.why[other])]
    ends = [(left, run.namespace) for run, body in found.values() if run.running and (left := _left(body)) is not None]
    lengths = {other: length for other in today if (length := _length(found[other][1], found.values()))}
    of_own = {other for other in today if made.why[other].startswith("namespace")}
    return waiting_times(today, ends, lengths, of_own).get(key)


def wanted(body: Body, now: datetime, promised: frozenset[Key] = frozenset()) -> WantedRun | None:
    """The job as the scheduler sees it; None where it has no part: finished, suspended, a study, in a Kueue queue."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    if status.get("finishedAt") or metadata.get("deletionTimestamp") or spec.get("suspend"):
        return None
    if spec.get("study") is not None or spec.get("queue") is not None:
        return None
    key = (str(metadata["namespace"]), str(metadata["name"]))
    turn = status.get("turn") or {}
    waits = status.get("queuedAt") or metadata.get("creationTimestamp")
    admitted = turn.get("admittedAt") or (None if turn else status.get("startedAt"))
    running = admitted is not None or key in promised
    waited = float(turn.get("waitedSeconds") or 0) if running else seconds_since(waits, now)
    return WantedRun(
        key=key,
        agent=(metadata.get("labels") or {}).get(names.LABEL_AGENT, key[1]),
        priority=int(spec.get("priority", 50)),
        gpus=gpus(spec),
        waited=waited,
        running=running,
        ran=seconds_since(admitted, now),
        begun=bool(status.get("attempts")),
    )


def gpus(spec: Body) -> int:
    """Of all ranks of a TrainingJobSpec."""
    limits = ((spec.get("pod") or {}).get("resources") or {}).get("limits") or {}
    each = sum(int(quantity(amount) or 0) for name, amount in limits.items() if name.endswith(GPU))
    return each * (1 + int(spec.get("workers") or 0))


def begun_today(
    found: Iterable[tuple[WantedRun, Body]],
    agents: Iterable[Body],
    jobs: Iterable[Body],
    now: datetime,
    seen: Mapping[str, int] = NOTHING_SEEN,
) -> Counter[str]:
    """Runs begun since midnight UTC, by namespace and in all (""): those made for an agent, less the ones that still
    wait; and those made by hand that are still there. Never fewer than were `seen` to begin: who deletes a run that
    was made by hand, or an agent with its runs, gets no other one for it."""
    begun: Counter[str] = Counter()
    today = now.date().isoformat()
    for agent in agents:
        status = agent.get("status") or {}
        day = status.get("trainingDay") or {}
        if day.get("date") == today:
            begun[agent["metadata"]["namespace"]] += int(status.get("trainings") or 0) - int(day["first"]) + 1
    for run, body in found:
        if (
            not run.running
            and not run.begun
            and _made_for_an_agent(body)
            and _today(body["metadata"].get("creationTimestamp"), today)
        ):
            begun[run.namespace] -= 1
    for body in jobs:
        status = body.get("status") or {}
        if not _made_for_an_agent(body) and began_on(body, today):
            begun[body["metadata"]["namespace"]] += 1
    begun |= Counter(seen)
    begun[""] = sum(begun.values())
    return begun


def began_on(body: Body, day: str) -> bool:
    """Whether the run has begun, and on this day (UTC, as date.isoformat writes it)."""
    status = body.get("status") or {}
    return _today((status.get("turn") or {}).get("admittedAt") or status.get("startedAt"), day)


def _made_for_an_agent(body: Body) -> bool:
    return any(item.get("kind") == "LearningAgent" for item in body["metadata"].get("ownerReferences") or ())


def _today(moment: str | None, today: str) -> bool:
    found = parse(moment)
    return found is not None and found.date().isoformat() == today


def _left(body: Body) -> float | None:
    """Seconds until a running job is done, by its speed."""
    status = body.get("status") or {}
    speed, step, total = status.get("stepsPerSecond"), status.get("step"), status.get("totalSteps")
    return max(0.0, (total - step) / speed) if speed and total and step is not None else None


def _length(body: Body, found: Iterable[tuple[WantedRun, Body]]) -> float | None:
    """Seconds that a waiting job will take at the middle speed of those that run."""
    speeds = sorted(
        float(other["status"]["stepsPerSecond"])
        for run, other in found
        if run.running and (other.get("status") or {}).get("stepsPerSecond")
    )
    steps = (body.get("spec") or {}).get("totalSteps")
    return steps / speeds[len(speeds) // 2] if speeds and steps else None
