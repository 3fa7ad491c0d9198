"""The model that an agent serves, from the spaces of its task on, and the jobs that may be deleted."""

import re
from difflib import get_close_matches

from learnloop_api import uniform_policy
from learnloop_api.kinds import language_model, learning_agent, model_deployment
from learnloop_api.kinds.task import Bound, Task
from learnloop_operator.agents.agent_snapshot import AgentSnapshot, TrainingRun

MOST_COMBINATIONS = 4096
KINDS = "observations, and one of actions, multiDiscrete and continuous"


def first_policy(task: Task) -> str | None:
    """Its address; None where neither the task nor its environment's name says what is seen and done."""
    given = spaces(task)
    return given.uri() if given else uniform_policy.ENVIRONMENTS.get(world_of(task) or "")


def task_flaw(task: Task) -> str | None:
    """Reason why the agent has no policy to begin with, or one that cannot act: field, value and fix."""
    if task.language_model is not None:
        return None
    given, name = spaces(task), world_of(task)
    if given is not None:
        if task.multi_discrete and given.choices > MOST_COMBINATIONS:
            counted = f"{task.multi_discrete} has {given.choices} combinations, {MOST_COMBINATIONS} are the most"
            return f"spec.task.multiDiscrete: {counted}; take some of the choices away"
        previous = uniform_policy.ENVIRONMENTS.get(name or "") if task.environment else None
        if previous and given.uri() != previous:
            return f"spec.task: says {given.uri()}, but {name} is {previous}; leave {KINDS} out, or correct them"
        return None
    if name is None:
        return f"spec.task: no observations and actions; set {KINDS}"
    if name in uniform_policy.ENVIRONMENTS:
        return None
    alike = get_close_matches(name, uniform_policy.ENVIRONMENTS, n=2, cutoff=0.8)
    fix = f"did you mean {' or '.join(alike)}? Otherwise set" if alike else "set"
    problem = "is not an environment of every image, so its observations and actions are unknown"
    return f"{_field(task)}: {name!r} {problem}; {fix} {KINDS} in spec.task"


def world_of(task: Task) -> str | None:
    """Name of the environment that the agent acts or is trained in; None where there is none."""
    if task.environment is not None:
        return task.environment.name
    return task.external.training_environment if task.external else None


def spaces(task: Task) -> uniform_policy.UniformSpaces | None:
    """Spaces in the task itself; None where its environment defines them."""
    if task.observations is None:
        return None
    if task.continuous is not None:
        low, high = _ends(task.continuous)
        return uniform_policy.UniformSpaces(task.choices or 0, low, high, task.observations)
    choices = task.actions or (uniform_policy.combinations(task.multi_discrete) if task.multi_discrete else 0)
    return uniform_policy.UniformSpaces(choices, observations=task.observations) if choices else None


def _ends(bounds: list[Bound]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low = tuple(bound.low for bound in bounds for _ in range(bound.times))
    return low, tuple(bound.high for bound in bounds for _ in range(bound.times))


def _field(task: Task) -> str:
    return "spec.task.environment.name" if task.environment else "spec.task.external.trainingEnvironment"


VALIDATED = "Validated"
PINNED, UNIFORM, BASE = "pinned", "uniform", "base"


def model_to_serve(snapshot: AgentSnapshot) -> learning_agent.AgentModel | None:
    """The pinned model, else the newest proven one, else an honest place to begin.

    That is the base model of who speaks, and the uniform random policy of who acts by numbers.

    None: the spec does not say what the agent sees and does (see problems.py).

    A model does not vanish with its TrainingJob: what is served stays served when the history is cleaned.
    """
    before, pin = snapshot.before.model, snapshot.spec.deployment.model
    if snapshot.spec.suspend and before is not None:
        return before
    if pin is not None:
        return learning_agent.AgentModel(uri=pin.uri, sha256=pin.sha256, source=PINNED)
    newest = next((job for job in reversed(snapshot.jobs) if is_proven(job)), None)
    if before is not None and number_of(snapshot.name, before.source) > (newest.number if newest else 0):
        return before
    if newest is not None and newest.uri:
        return learning_agent.AgentModel(
            uri=newest.uri, sha256=newest.sha256, source=newest.name, mean_return=newest.mean_return
        )
    spoken = snapshot.spec.task.language_model
    if spoken is not None:
        return learning_agent.AgentModel(uri=language_model.base_alone(spoken), sha256=spoken.base.sha256, source=BASE)
    first = None if task_flaw(snapshot.spec.task) else first_policy(snapshot.spec.task)
    return learning_agent.AgentModel(uri=first, source=UNIFORM) if first else None


def is_proven(job: TrainingRun) -> bool:
    return (job.phase == VALIDATED or job.proven) and job.uri is not None and job.sha256 is not None


def number_of(agent: str, job: str) -> int:
    """N of the job `agent-N`; 0 for any other name."""
    match = re.fullmatch(re.escape(agent) + r"-([1-9][0-9]{0,8})", job)
    return int(match[1]) if match else 0


def forgettable(snapshot: AgentSnapshot) -> tuple[str, ...]:
    """Finished jobs beyond the history, oldest first; never one whose model serves or is to, nor the newest proof."""
    if snapshot.spec.training is None:
        return ()
    served = {arm.uri for arm in _arms(snapshot)}
    wanted = model_to_serve(snapshot)
    newest = next((job.name for job in reversed(snapshot.jobs) if is_proven(job)), None)
    finished = [job for job in snapshot.jobs if job.finished]
    old = finished[: max(0, len(finished) - snapshot.spec.training.history)]
    return tuple(
        job.name
        for job in old
        if job.uri not in {*served, wanted and wanted.uri} and job.name not in (newest, wanted and wanted.source)
    )


def _arms(snapshot: AgentSnapshot) -> tuple[model_deployment.ArmStatus, ...]:
    status = snapshot.deployment
    arms = (status.stable, status.canary, status.previous) if status else ()
    return tuple(arm for arm in arms if arm)
