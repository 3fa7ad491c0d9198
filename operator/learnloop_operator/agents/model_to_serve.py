"""Which model the agent is to be served with, and which jobs may be forgotten."""

import re

from learnloop_api.kinds.language_model import base_alone
from learnloop_api.kinds.learning_agent import AgentModel
from learnloop_api.kinds.model_deployment import ArmStatus
from learnloop_operator.agents.first_policy import first_policy, flaw
from learnloop_operator.agents.snapshot import AgentSnapshot, TrainingRun

VALIDATED = "Validated"
PINNED, UNIFORM, BASE = "pinned", "uniform", "base"


def model_to_serve(world: AgentSnapshot) -> AgentModel | None:
    """The pinned model, else the newest proven one, else an honest place to begin.

    That is the base model of who speaks, and the uniform random policy of who acts by numbers.

    None: nobody said what the agent sees and does (see problems.py).

    A model does not vanish with its TrainingJob: what is served stays served when the history is cleaned.
    """
    before, pin = world.before.model, world.spec.deployment.model
    if world.spec.suspend and before is not None:
        return before
    if pin is not None:
        return AgentModel(uri=pin.uri, sha256=pin.sha256, source=PINNED)
    newest = next((job for job in reversed(world.jobs) if is_proven(job)), None)
    if before is not None and number_of(world.name, before.source) > (newest.number if newest else 0):
        return before
    if newest is not None and newest.uri:
        return AgentModel(uri=newest.uri, sha256=newest.sha256, source=newest.name, mean_return=newest.mean_return)
    spoken = world.spec.task.language_model
    if spoken is not None:
        return AgentModel(uri=base_alone(spoken), sha256=spoken.base.sha256, source=BASE)
    first = None if flaw(world.spec.task) else first_policy(world.spec.task)
    return AgentModel(uri=first, source=UNIFORM) if first else None


def is_proven(job: TrainingRun) -> bool:
    """Whether the job's artifact passed its gates."""
    return job.phase == VALIDATED and job.uri is not None and job.sha256 is not None


def number_of(agent: str, job: str) -> int:
    """N of the job `agent-N`; 0 for any other name."""
    match = re.fullmatch(re.escape(agent) + r"-([1-9][0-9]{0,8})", job)
    return int(match[1]) if match else 0


def forgettable(world: AgentSnapshot) -> tuple[str, ...]:
    """Finished jobs beyond the history, oldest first; never one whose model serves or is to, nor the newest proof."""
    if world.spec.training is None:
        return ()
    served = {arm.uri for arm in _arms(world)}
    wanted = model_to_serve(world)
    newest = next((job.name for job in reversed(world.jobs) if is_proven(job)), None)
    finished = [job for job in world.jobs if job.finished]
    old = finished[: max(0, len(finished) - world.spec.training.history)]
    return tuple(
        job.name
        for job in old
        if job.uri not in {*served, wanted and wanted.uri} and job.name not in (newest, wanted and wanted.source)
    )


def _arms(world: AgentSnapshot) -> tuple[ArmStatus, ...]:
    status = world.deployment
    arms = (status.stable, status.canary, status.previous) if status else ()
    return tuple(arm for arm in arms if arm)
