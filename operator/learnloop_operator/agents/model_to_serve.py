"""The model that an agent serves, the jobs that may be deleted, and the problems that keep it from learning."""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from learnloop_api import known_environments, uniform_policy
from learnloop_api.kinds import base, language_model, learning_agent, model_deployment
from learnloop_api.kinds.task import Bound, Task
from learnloop_operator.agents.agent_snapshot import AgentSnapshot, TrainingRun
from learnloop_operator.core import allowed_pods, artifacts

MOST_COMBINATIONS = 4096
KINDS = "observations, and one of actions, multiDiscrete and continuous"


def first_policy(task: Task) -> str | None:
    """Its address; None where neither the task nor its environment's name says what is seen and done."""
    given = spaces(task)
    return given.uri() if given else known_environments.SPACES.get(world_of(task) or "")


def flaw(task: Task) -> str | None:
    """Reason why the agent has no policy to begin with, or one that cannot act: field, value and fix."""
    if task.language_model is not None:
        return None
    given, name = spaces(task), world_of(task)
    if given is not None:
        if task.multi_discrete and given.choices > MOST_COMBINATIONS:
            counted = f"{task.multi_discrete} has {given.choices} combinations, {MOST_COMBINATIONS} are the most"
            return f"spec.task.multiDiscrete: {counted}; take some of the choices away"
        previous = known_environments.SPACES.get(name or "") if task.environment else None
        if previous and given.uri() != previous:
            return f"spec.task: says {given.uri()}, but {name} is {previous}; leave {KINDS} out, or correct them"
        return None
    if name is None:
        return f"spec.task: what the agent sees and does is not said; set {KINDS}"
    if name in known_environments.SPACES:
        return None
    alike = get_close_matches(name, known_environments.SPACES, n=2, cutoff=0.8)
    fix = f"did you mean {' or '.join(alike)}? Otherwise set" if alike else "set"
    problem = "is none of the environments that every image has, so what is seen and done in it is not known"
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

    None: the spec does not say what the agent sees and does (see first_problem).

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
    first = None if flaw(snapshot.spec.task) else first_policy(snapshot.spec.task)
    return learning_agent.AgentModel(uri=first, source=UNIFORM) if first else None


def is_proven(job: TrainingRun) -> bool:
    return job.phase == VALIDATED and job.uri is not None and job.sha256 is not None


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


@dataclass(frozen=True, slots=True)
class Problem:
    """`waits`: it mends itself when another object gets ready."""

    reason: str
    sentence: str
    waits: bool = False


def first_problem(snapshot: AgentSnapshot) -> Problem | None:
    """The references of the spec, in the order in which they are needed."""
    return (
        _pods_not_allowed(snapshot)
        or _reward_policy(snapshot)
        or _memory(snapshot)
        or _environment(snapshot)
        or _spaces(snapshot)
        or _pin(snapshot)
    )


def _pods_not_allowed(snapshot: AgentSnapshot) -> Problem | None:
    """Options of pods that the platform does not allow: of the actors, of training and of the policy servers."""
    spec = snapshot.spec
    pods = {"spec.deployment.template.serving.pod": spec.deployment.template.serving.pod}
    if spec.training is not None:
        pods["spec.training.template.pod"] = spec.training.template.pod
    if spec.task.environment is not None:
        pods["spec.task.environment.actors.pod"] = spec.task.environment.actors.pod
    if (language := spec.deployment.template.serving.language) is not None:
        pods["spec.deployment.template.serving.language.server"] = base.PodOptions(image=language.server.image)
    result = [allowed_pods.forbidden(options, field, snapshot.defaults.pods) for field, options in pods.items()]
    result.append(
        allowed_pods.forbidden_base(spec.task.language_model, "spec.task.languageModel", snapshot.defaults.pods)
    )
    return next((Problem(allowed_pods.REASON, stray) for stray in result if stray), None)


def _pin(snapshot: AgentSnapshot) -> Problem | None:
    pin = snapshot.spec.deployment.model
    stray = artifacts.foreign(pin.uri, snapshot.namespace) if pin and pin.uri else ""
    return Problem("ModelOfAnotherNamespace", f"spec.deployment.model.uri: {stray}") if stray else None


def _reward_policy(snapshot: AgentSnapshot) -> Problem | None:
    name = snapshot.spec.reward_policy_ref.name
    if not snapshot.policy.exists:
        text = f"spec.rewardPolicyRef.name: no RewardPolicy {name!r} in namespace {snapshot.namespace}; create it"
        return Problem("RewardPolicyMissing", text)
    if snapshot.policy.revision is None:
        return Problem("RewardPolicyNotPublished", f"RewardPolicy {name!r} has no published revision yet", waits=True)
    return None


def _memory(snapshot: AgentSnapshot) -> Problem | None:
    reference = snapshot.spec.memory.service_ref
    if reference is None or snapshot.memory is None:
        return None
    if not snapshot.memory.exists:
        text = f"spec.memory.serviceRef.name: no MemoryService {reference.name!r} in namespace {snapshot.namespace}"
        return Problem("MemoryServiceMissing", f"{text}; create it, or leave serviceRef out")
    if not snapshot.memory.url:
        return Problem("MemoryServiceNotReady", f"MemoryService {reference.name!r} has no address yet", waits=True)
    return None


def _environment(snapshot: AgentSnapshot) -> Problem | None:
    """A run without an environment learns from the log alone, and needs spaces; the API server checks the rest."""
    task, training = snapshot.spec.task, snapshot.spec.training
    played = world_of(task)
    if played is not None or training is None:
        return None
    if spaces(task) is None:
        text = f"spec.task: no environment defines what the agent sees and does; set {KINDS}"
        return Problem("SpacesUnknown", text)
    return None


def _spaces(snapshot: AgentSnapshot) -> Problem | None:
    """A pinned model, and one already proven, know themselves what they see and do."""
    model = snapshot.before.model
    if snapshot.spec.deployment.model is not None or (model is not None and model.source != UNIFORM):
        return None
    text = flaw(snapshot.spec.task)
    return Problem("SpacesUnknown", text) if text else None
