"""Records of the agent's runs: the status, completed from the newest TrainingJob, and a person's orders to train."""

from hashlib import sha256

from learnloop_api.kinds.learning_agent import LastTraining, LearningAgentStatus
from learnloop_api.wire.training_request import TrainingOrder
from learnloop_operator.agents.agent_children import (
    NOTE_REQUEST,
    NOTE_REWARDED,
    NOTE_TRAIN,
    NOTE_TRIGGER,
)
from learnloop_operator.agents.agent_snapshot import AgentSnapshot, TrainingRun
from learnloop_operator.core.plan import LONGEST_NOTE, Announcement, Call
from learnloop_operator.core.times import parse, seconds_since


def recorded(snapshot: AgentSnapshot) -> LearningAgentStatus:
    """The persisted status, completed by a run that was created just before the operator died."""
    before = snapshot.before
    newest = snapshot.jobs[-1] if snapshot.jobs else None
    if newest is None or newest.number <= (before.trainings or 0):
        return before.model_copy(update={"last_training": _refreshed(before.last_training, snapshot.jobs)})
    notes = newest.notes or {}
    return before.model_copy(
        update={
            "trainings": newest.number,
            "last_training": _last(newest),
            "observed_train": notes.get(NOTE_TRAIN, "")[:LONGEST_NOTE] or before.observed_train,
            "observed_training_request": notes.get(NOTE_REQUEST, "")[:LONGEST_NOTE] or before.observed_training_request,
        }
    )


def failures_in_a_row(snapshot: AgentSnapshot) -> int:
    """Number of runs that ended without a validated model since the last one that had one."""
    ended = [job for job in snapshot.jobs if job.finished]
    validated = [index for index, job in enumerate(ended) if job.phase == "Validated"]
    return len(ended) - 1 - (validated[-1] if validated else -1)


def _last(job: TrainingRun) -> LastTraining:
    notes = job.notes or {}
    rewarded = notes.get(NOTE_REWARDED, "")
    return LastTraining(
        name=job.name,
        trigger=notes.get(NOTE_TRIGGER, "unknown")[:LONGEST_NOTE],
        phase=job.phase or None,
        at=job.created_at,
        rewarded=int(rewarded) if rewarded.isdecimal() else None,
    )


def _refreshed(last: LastTraining | None, jobs: tuple[TrainingRun, ...]) -> LastTraining | None:
    job = next((job for job in jobs if last and job.name == last.name), None)
    return last.model_copy(update={"phase": job.phase or None}) if last and job else last


NEWS_SECONDS = 3600.0
"""A new leader repeats orders that are not older; the data plane ignores those that it has."""
BY_A_PERSON = "annotation"
"""The trigger of a run that `kubectl learnloop train` asked for."""


def order_announcements(snapshot: AgentSnapshot, after: LearningAgentStatus) -> tuple[Announcement, ...]:
    """The order that the newest run obeys, under an identity that it always has."""
    order = _order(snapshot, after)
    if order is None or seconds_since(order.at.isoformat(), snapshot.now) > NEWS_SECONDS:
        return ()
    uid = str(snapshot.object["metadata"].get("uid", ""))
    identity = sha256("\n".join((uid, order.job, order.value)).encode()).hexdigest()[:32]
    path = f"/api/v1/agents/{snapshot.name}/training-orders/{identity}"
    return (Announcement(Call("PUT", path, order.model_dump(mode="json")), identity),)


def _order(snapshot: AgentSnapshot, after: LearningAgentStatus) -> TrainingOrder | None:
    run, value = after.last_training, after.observed_train
    if run is None or run.trigger != BY_A_PERSON or value is None or parse(run.at) is None:
        return None
    who = value.partition(" by ")[2][:256] or None
    return TrainingOrder.model_validate(
        {
            "agent": snapshot.name,
            "job": run.name,
            "by": who,
            "verified": bool(who and snapshot.defaults.names_are_verified),
            "at": run.at,
            "value": value[:512],
        }
    )
