"""Actions that an algorithm can learn, and those that a log can judge where nothing is played.

A run finds out by itself, after its pod has started; an agent would begin one at each trigger, and all of them fail.
"""

from learnloop_api.kinds.behaviour import usual
from learnloop_api.kinds.training.algorithms import ALGORITHMS, FROM_LOG
from learnloop_api.kinds.training_job import TrainingJobSpec, TrainingTemplate
from learnloop_api.known_environments import SPACES as KNOWN
from learnloop_api.uniform_policy import UniformSpaces, parse

SPACES = "spec.data.spaces"
SPECIAL = ("maml", "hierarchical-dqn")
"""Algorithms that need ranges of tasks, or landmarks."""


def unlearnable_job(spec: TrainingJobSpec) -> str | None:
    """Reason why a run cannot end well, as far as its spec says: field, value and fix. None: it can."""
    if spec.data.environment is not None:
        return unlearnable_in(spec.data.environment, spec, "spec")
    if spec.data.spaces is None or spec.algorithm not in FROM_LOG:
        return None
    try:
        spaces = parse(spec.data.spaces)
    except ValueError as error:
        return f"{SPACES}: {error}"
    return unlearnable(spaces, spec, "spec", SPACES)


def unlearnable_in(environment: str, template: TrainingTemplate, at: str) -> str | None:
    """The same of a run that plays an environment which every image has; of others nothing is known here."""
    previous = KNOWN.get(environment)
    return _misfit(_kind(parse(previous)), template, at, environment) if previous else None


def _kind(spaces: UniformSpaces) -> str:
    return "discrete" if not spaces.low else "hybrid" if spaces.choices else "continuous"


def _misfit(kind: str, template: TrainingTemplate, at: str, text: str) -> str | None:
    name, learner = template.algorithm, ALGORITHMS[template.algorithm]
    if not learner.acts or kind in learner.acts:
        return None
    use = learner.from_log, learner.team
    alike = [other for other, one in ALGORITHMS.items() if kind in one.acts and (one.from_log, one.team) == use]
    fix = f"set it to {_or([other for other in alike if other not in SPECIAL])}"
    return f"{at}.algorithm: {name} learns {_or(list(learner.acts))} actions, and those of {text} are {kind}; {fix}"


def unlearnable(spaces: UniformSpaces, template: TrainingTemplate, at: str, said: str) -> str | None:
    """Reason why no run can end well that nothing is played for: field, value and fix. None: one can.

    `at` is where the template stands, and `said` what says the spaces.
    """
    algorithm, acts = f"{at}.algorithm", f"{at}.export.behaviour.kind"
    kind = _kind(spaces)
    name, learner = template.algorithm, ALGORITHMS[template.algorithm]
    if why := _misfit(kind, template, at, said):
        return why
    if kind == "discrete":
        return None
    wanted = template.export.behaviour
    behaviour = usual(name, continuous=True) if wanted is None else wanted
    gates = template.gates
    gated = gates.significant or gates.min_return is not None or gates.min_improvement is not None
    able = [one for one in FROM_LOG if ALGORITHMS[one].spreads and kind in ALGORITHMS[one].acts]
    if behaviour.kind == "sampled" and not learner.spreads:
        why = f"sampled draws numbers, and {name} learns no deviation of them"
        return f"{acts}: {why}; set it to greedy, or {algorithm} to {_or(able)}"
    if behaviour.kind == "sampled" or not gated:
        return None
    why = (
        f"a policy that is {behaviour.kind} has no density of its numbers, so a log cannot judge it and no gate passes"
    )
    sampled = "set it to sampled" if learner.spreads else f"set it to sampled, {algorithm} to {_or(able)}"
    return f"{acts}: {why}; {sampled}, or set no gates (gates.significant: false)"


def _or(words: list[str]) -> str:
    return " or ".join(words)
