"""A run waits for its turn where the installation's quotas say so, and makes way for a higher priority.

Record before act: that a run may begin is in its status before its gang is made, so an operator that dies between
gives nobody else the same place.
"""

from typing import Any

from learnloop_operator.core import durations
from learnloop_operator.core.coordination.turns import Turn
from learnloop_operator.core.plan import Manifest, Notice, Plan
from learnloop_operator.training.attempts import NOW, interrupt, told
from learnloop_operator.training.backends.choice import Backends
from learnloop_operator.training.snapshot import TrainingSnapshot
from learnloop_operator.training.status import StatusVerdict, status

LOOK_AGAIN = 5.0
"""Seconds until the next look of a run that waits."""


def await_turn(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """No gang yet, and none is made before its turn."""
    turn = world.turn
    if turn is None or world.job is not None or world.ranks or (world.status.get("turn") or {}).get("admittedAt"):
        return None
    waited = round(world.since("queuedAt") or 0.0)
    if turn.admitted:
        after = f" after {durations.text(waited)} in the queue" if waited >= 1 else ""
        message = f"its turn has come{after}"
        state = _queued(world, "TurnCame", message, {"admittedAt": world.time, "waitedSeconds": waited})
        return Plan(status=state, events=(Notice("Normal", "TurnCame", message),), requeue_after=NOW)
    if turn.place is None:
        # Its gang ended to make way, or it began before there were quotas. Until this is on record it holds its place.
        state = _queued(world, "AwaitingTurn", "gave up its place, and waits for its next turn", {"waiting": 1})
        return Plan(status=state, requeue_after=NOW)
    message = sentence(turn)
    found: dict[str, Any] = {"place": turn.place, "waiting": turn.waiting}
    if turn.seconds is not None:
        found["eta"] = durations.text(durations.rough(turn.seconds))
    state = _queued(world, "AwaitingTurn", message, found)
    return Plan(status=state, events=told(world, "AwaitingTurn", message), requeue_after=LOOK_AGAIN)


def make_way(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """A run of higher priority needs the place: this one ends at its newest checkpoint, and waits again."""
    turn, job = world.turn, world.job
    if turn is None or turn.way_for is None or job is None or job.deleting or job.state != "active" or job.queued:
        return None
    namespace, name = turn.way_for
    where = name if namespace == world.namespace else f"{namespace}/{name}"
    why = f"makes way for {where}, which has a higher priority; goes on from the newest checkpoint at its next turn"
    count = int(world.status.get("preemptions") or 0) + 1
    return interrupt(world, job, "Preempted", why, preemptions=count, turn=None)


def sentence(turn: Turn) -> str:
    """e.g. place 3 of 12 in the queue, about 4m: namespace team-a runs 2 of 2 trainings"""
    about = f", about {durations.text(durations.rough(turn.seconds))}" if turn.seconds is not None else ""
    return f"place {turn.place} of {turn.waiting} in the queue{about}: {turn.why}"


def _queued(world: TrainingSnapshot, reason: str, message: str, turn: dict[str, Any]) -> Manifest:
    # Until the gang runs again, a resume stays free of charge.
    verdict = StatusVerdict(phase="Queued", reason=reason, message=message, suspended=world.holds("Suspended"))
    return status(
        world,
        verdict,
        attempts=world.attempts or None,
        queuedAt=world.status.get("queuedAt") or world.time,
        eta=None,
        turn=turn,
    )
