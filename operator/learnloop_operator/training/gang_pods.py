"""The pods of a gang: whether they wait, have failed or were disrupted, and the last sentence of one that ended."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from learnloop_operator.core import plan, pod_trouble, times
from learnloop_operator.training.ranks import ENGINE
from learnloop_operator.training.run_cost import reserved
from learnloop_operator.training.run_snapshot import CONFIGURATION_ERROR, BackendJob, Rank, TrainingSnapshot

CONTROLLER_GRACE = timedelta(seconds=60)
"""A gang with neither pods nor a status is older than this only where its controller does not run."""
REPLACED_AFTER = timedelta(seconds=30)
"""A pod created this much later than its gang began was not there from the start: it replaces a lost one."""


ENGINE_EXIT_GRACE = timedelta(seconds=60)
"""The trainer sees its engine's end, and stores the last checkpoint, in less; it sees nothing of a whole container that
was killed."""


def rank_of(pod: plan.KubeObject, containers: Collection[str], now: datetime) -> Rank | None:
    """One rank, in a container of one of these names; None for a pod without a usable creation time."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = times.parse(metadata.get("creationTimestamp"))
    if created is None:
        return None
    state = _state(status, containers)
    # A failed init container keeps the main one from starting; what the main one itself says is its exit code.
    stuck = pod_trouble.held_up(status) or pod_trouble.last_words(
        {"initContainerStatuses": status.get("initContainerStatuses")}
    )
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    engine = _state(status, (ENGINE,))
    engine_stuck = pod_trouble.held_up(status) if running and "waiting" in engine else ""
    starts = [times.parse(part.get("startedAt")) for part in (running or ended, engine.get("running") or {})]
    return Rank(
        name=metadata["name"],
        created=created,
        running=bool(running),
        started=max((start for start in starts if start), default=None),
        exit_code=ended.get("exitCode"),
        message=str(ended.get("message") or "").strip()[: pod_trouble.LONGEST],
        waiting=engine_stuck if running or ended else stuck or pod_trouble.step_of(status),
        stuck=bool(engine_stuck) or (bool(stuck) and not running and not ended),
        lost_engine=_lost(engine.get("terminated") or {}, now) if running else "",
        disrupted=pod_trouble.lost_node(status),
        deleting="deletionTimestamp" in metadata,
        reserved=reserved(pod),
    )


def _lost(engine: Mapping[str, Any], now: datetime) -> str:
    finished = times.parse(engine.get("finishedAt"))
    if not engine.get("exitCode") or finished is None or now - finished < ENGINE_EXIT_GRACE:
        return ""
    message = pod_trouble.cause_in(str(engine.get("message") or ""))
    return f"its engine {pod_trouble.exit_of(engine)}{': ' if message else ''}{message}"[: pod_trouble.LONGEST]


def _state(status: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    for item in status.get("containerStatuses") or ():
        if item.get("name") in names:
            return item.get("state") or {}
    return {}


def held_up(snapshot: TrainingSnapshot) -> str | None:
    """Problem to fix before the whole gang can work: no node, no image, pods that may not be made.

    Asked until work begins: a master that runs alone only says that it waits for the others. A trainer whose engine
    cannot start says "training" all the same.
    """
    beat = snapshot.heartbeat
    if snapshot.job is None:
        return None
    for rank in snapshot.ranks:
        if rank.stuck and rank.running:
            return f"the engine of pod {rank.name} waits: {rank.waiting}"
    if beat is not None and beat.phase != "starting":
        return None
    for rank in snapshot.ranks:
        if rank.stuck:
            return f"pod {rank.name} waits: {rank.waiting}"
    if len(snapshot.ranks) < _expected(snapshot) and snapshot.job.trouble:
        return f"{len(snapshot.ranks)} of {_expected(snapshot)} pods exist: {snapshot.job.trouble}"
    return _unheard(snapshot, snapshot.job)


def _unheard(snapshot: TrainingSnapshot, job: BackendJob) -> str | None:
    if (
        job.has_status
        or job.queued
        or job.state != "active"
        or snapshot.ranks
        or snapshot.now - _begun(snapshot, job) < CONTROLLER_GRACE
    ):
        return None
    kind, name = job.ref.kind, job.ref.name
    return f"{kind} {name} has neither a status nor pods: see that the controller of {kind}s runs"


def waiting(snapshot: TrainingSnapshot) -> str | None:
    """Reason why the gang has not begun to work, when the cause lies outside of it (no node, no image, no pods yet)."""
    cause = held_up(snapshot)
    if cause or snapshot.heartbeat is not None or snapshot.job is None:
        return cause
    for rank in snapshot.ranks:
        if rank.waiting:
            return f"pod {rank.name} waits: {rank.waiting}"
    if len(snapshot.ranks) < _expected(snapshot):
        return f"{len(snapshot.ranks)} of {_expected(snapshot)} pods exist so far"
    return None


def stalled(snapshot: TrainingSnapshot, job: BackendJob) -> str | None:
    """The sentence why this attempt is given up; None while there is hope."""
    limit = snapshot.spec.stall_seconds
    if held_up(snapshot):
        return None  # another attempt would be held up just the same
    for rank in snapshot.ranks:
        if rank.lost_engine:
            return f"pod {rank.name}: {rank.lost_engine}"
    begun = _begun(snapshot, job)
    if waiting(snapshot) and not any(_replaced(rank, begun) for rank in snapshot.ranks):
        return None
    signs = [begun]
    # Starts count for pods that were there from the beginning only: a crash loop never stops starting.
    signs += [rank.started for rank in snapshot.ranks if rank.started and not _replaced(rank, begun)]
    beat, age = snapshot.heartbeat, snapshot.run.heartbeat_age_seconds if snapshot.run else None
    # Its rank 0 starts again when another rank is lost, and the newest heartbeat forgets the work before.
    if snapshot.run is not None and snapshot.run.checkpoint is not None:
        signs.append(snapshot.run.checkpoint.at)
    # A gang that waits for a lost rank still says "starting"; only work is a sign of life.
    if beat is not None and beat.phase != "starting" and age is not None:
        signs.append(snapshot.now - timedelta(seconds=age))
    quiet = (snapshot.now - max(signs)).total_seconds()
    if quiet <= limit:
        return None
    cause = f": {beat.message}" if beat is not None and beat.message else ""
    return f"no sign of work for {quiet:.0f} s (limit {limit} s){cause}; {census(snapshot)}"


def census(snapshot: TrainingSnapshot) -> str:
    running = sum(rank.running and not rank.deleting for rank in snapshot.ranks)
    return f"{running} of {_expected(snapshot)} ranks run"


def refusal(snapshot: TrainingSnapshot) -> str | None:
    """The trainer's sentence when it says that the configuration is wrong."""
    for rank in snapshot.ranks:
        if rank.exit_code == CONFIGURATION_ERROR:
            return rank.message or "the trainer refused its configuration without saying why; see its logs"
    return None


def disruption(snapshot: TrainingSnapshot) -> str:
    """Reason why a rank lost its node, by its pod or by the gang's own end; "" when none did."""
    for rank in snapshot.ranks:
        if rank.disrupted:
            return f"pod {rank.name} lost its node: {rank.disrupted}; continues from the newest checkpoint"
    message = snapshot.job.disrupted if snapshot.job is not None else ""
    return f"a rank lost its node: {message}; continues from the newest checkpoint" if message else ""


def post_mortem(snapshot: TrainingSnapshot, job: BackendJob) -> str:
    """Describe how the gang ended, in the words of the rank that failed."""
    for rank in snapshot.ranks:
        if rank.exit_code:
            text = f": {rank.message}" if rank.message else ""
            return f"pod {rank.name} exited with {rank.exit_code}{text}"
    for rank in snapshot.ranks:
        if rank.stuck:
            return f"pod {rank.name} never started: {rank.waiting}"
    return job.message or "its pods failed"


def _begun(snapshot: TrainingSnapshot, job: BackendJob) -> datetime:
    return max(job.created, times.parse(snapshot.status.get("attemptStartedAt")) or job.created)


def _replaced(rank: Rank, begun: datetime) -> bool:
    return rank.created - begun > REPLACED_AFTER


def _expected(snapshot: TrainingSnapshot) -> int:
    return 1 + snapshot.spec.workers
