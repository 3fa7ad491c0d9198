"""A gang is made whole or not at all, where the namespace has ResourceQuotas."""

from dataclasses import replace

from learnloop_operator.core.coordination.namespace_room import PodGroup
from learnloop_operator.core.plan import Manifest, Plan
from learnloop_operator.training.attempts import LATER, interrupt, told
from learnloop_operator.training.backends.backend import RankDefaults
from learnloop_operator.training.backends.choice import Backends
from learnloop_operator.training.backends.rank_pods import rank_template
from learnloop_operator.training.snapshot import RunRequest, TrainingSnapshot
from learnloop_operator.training.status import StatusVerdict, status

REASON = "NoRoom"
PATIENCE = 5.0
"""Seconds in which the pods of a gang are made; then those that are missing are looked for."""


def template_of(world: TrainingSnapshot, defaults: RankDefaults) -> Manifest:
    """core/v1 PodTemplateSpec of its ranks, whichever backend makes them."""
    request = RunRequest(
        job=world.object,
        spec=world.spec,
        attempt=0,
        agent=world.agent_name,
        baseline_uri=None,
        baseline_sha256=None,
    )
    return rank_template(request, defaults, "rank")


def ranks_of(world: TrainingSnapshot, defaults: RankDefaults, count: int) -> PodGroup:
    """So many of its ranks, as quotas count them."""
    return PodGroup(world.admitted_rank or template_of(world, defaults)["spec"], count)


def gang_of(world: TrainingSnapshot, backends: Backends) -> PodGroup:
    """All that its next attempt makes, as quotas count it."""
    backend = backends.chosen(world)
    group = ranks_of(world, backends.defaults, 1 + world.spec.workers)
    return group if backend is None else replace(group, objects=backend.counted)


def await_room(world: TrainingSnapshot, backends: Backends) -> Plan | None:
    """No gang yet, and none is made that would not fit whole. Waiting costs neither an attempt nor time of the run."""
    if world.room is None or world.job is not None or world.ranks:
        return None
    why = world.room.lacks(gang_of(world, backends))
    if not why:
        return None
    verdict = StatusVerdict(phase="Queued", reason=REASON, message=why, suspended=world.holds("Suspended"))
    state = status(
        world,
        verdict,
        attempts=world.attempts or None,
        queuedAt=world.status.get("queuedAt") or world.time,
        eta=None,
    )
    return Plan(status=state, events=told(world, REASON, why), requeue_after=LATER)


def withdraw_part(world: TrainingSnapshot, backends: Backends) -> Plan | None:
    """Others took the room while the gang was made: its pods make room again, and all of them wait."""
    job, missing = world.job, 1 + world.spec.workers - len(world.ranks)
    if world.room is None or job is None or job.deleting or job.state != "active" or job.queued or missing <= 0:
        return None
    if world.heartbeat is not None and world.heartbeat.phase != "starting":
        return None
    if (world.now - job.created).total_seconds() < PATIENCE:
        return None
    why = world.room.lacks(ranks_of(world, backends.defaults, missing))
    if not why:
        return None
    told_why = f"{len(world.ranks)} of {1 + world.spec.workers} pods exist, which make room until all fit: {why}"
    return interrupt(world, job, REASON, told_why)
