"""The policy an agent begins with: anything that its environment takes, each as likely."""

from difflib import get_close_matches

from learnloop_api.kinds.task import Bound, Task
from learnloop_api.known_environments import SPACES
from learnloop_api.uniform_policy import UniformSpaces, combinations

MOST_COMBINATIONS = 4096
KINDS = "observations, and one of actions, multiDiscrete and continuous"


def first_policy(task: Task) -> str | None:
    """Its address; None where neither the task nor its environment's name says what is seen and done."""
    said = spaces(task)
    return said.uri() if said else SPACES.get(world_of(task) or "")


def flaw(task: Task) -> str | None:
    """Why the agent has no policy to begin with, or one that cannot act: field, value and fix."""
    if task.language_model is not None:
        return None
    said, name = spaces(task), world_of(task)
    if said is not None:
        if task.multi_discrete and said.choices > MOST_COMBINATIONS:
            counted = f"{task.multi_discrete} has {said.choices} combinations, {MOST_COMBINATIONS} are the most"
            return f"spec.task.multiDiscrete: {counted}; take some of the choices away"
        known = SPACES.get(name or "") if task.environment else None
        if known and said.uri() != known:
            return f"spec.task: says {said.uri()}, but {name} is {known}; leave {KINDS} out, or correct them"
        return None
    if name is None:
        return f"spec.task: what the agent sees and does is not said; set {KINDS}"
    if name in SPACES:
        return None
    alike = get_close_matches(name, SPACES, n=2, cutoff=0.8)
    fix = f"did you mean {' or '.join(alike)}? Otherwise set" if alike else "set"
    problem = "is none of the environments that every image has, so what is seen and done in it is not known"
    return f"{_field(task)}: {name!r} {problem}; {fix} {KINDS} in spec.task"


def world_of(task: Task) -> str | None:
    """Name of the environment that the agent acts or is trained in; None where there is none."""
    if task.environment is not None:
        return task.environment.name
    return task.external.training_environment if task.external else None


def spaces(task: Task) -> UniformSpaces | None:
    """What the task itself says; None where it leaves that to its environment."""
    if task.observations is None:
        return None
    if task.continuous is not None:
        low, high = _ends(task.continuous)
        return UniformSpaces(task.choices or 0, low, high, task.observations)
    choices = task.actions or (combinations(task.multi_discrete) if task.multi_discrete else 0)
    return UniformSpaces(choices, observations=task.observations) if choices else None


def _ends(bounds: list[Bound]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low = tuple(bound.low for bound in bounds for _ in range(bound.times))
    return low, tuple(bound.high for bound in bounds for _ in range(bound.times))


def _field(task: Task) -> str:
    return "spec.task.environment.name" if task.environment else "spec.task.external.trainingEnvironment"
