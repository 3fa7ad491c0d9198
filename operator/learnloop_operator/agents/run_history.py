"""What is on record of the agent's runs: the status, and the newest TrainingJob where that knows more."""

from learnloop_api.kinds.learning_agent import LastTraining, LearningAgentStatus
from learnloop_operator.agents.changes import recalled
from learnloop_operator.agents.manifests import (
    NOTE_CHANGES,
    NOTE_REQUEST,
    NOTE_REWARDED,
    NOTE_TRAIN,
    NOTE_TRIGGER,
)
from learnloop_operator.agents.snapshot import AgentSnapshot, TrainingRun
from learnloop_operator.core.snapshot import LONGEST_NOTE


def recorded(world: AgentSnapshot) -> LearningAgentStatus:
    """The persisted status, completed by a run that was created just before the operator died."""
    before = world.before
    newest = world.jobs[-1] if world.jobs else None
    if newest is None or newest.number <= (before.trainings or 0):
        return before.model_copy(update={"last_training": _refreshed(before.last_training, world.jobs)})
    notes = newest.notes or {}
    return before.model_copy(
        update={
            "trainings": newest.number,
            "last_training": _last(newest),
            "changes": recalled(
                before.changes, notes.get(NOTE_CHANGES, ""), notes.get(NOTE_TRIGGER, ""), newest.created_at
            ),
            "observed_train": notes.get(NOTE_TRAIN, "")[:LONGEST_NOTE] or before.observed_train,
            "observed_training_request": notes.get(NOTE_REQUEST, "")[:LONGEST_NOTE] or before.observed_training_request,
        }
    )


def failures_in_a_row(world: AgentSnapshot) -> int:
    """How many of the newest runs that ended had no validated model, up to the last one that had one."""
    ended = [job for job in world.jobs if job.finished]
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
