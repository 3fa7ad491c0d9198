"""How the exported policy of a run acts: what the order says, or what is usual for its algorithm."""

from learnloop_api.kinds.behaviour import Behaviour, usual, values_actions
from learnloop_api.kinds.training.algorithms import FROM_LOG
from learnloop_common.acting import policy
from learnloop_environments.base import Bounds
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import find, traits
from learnloop_trainer.export.graph import Deviation
from learnloop_trainer.training_order import Order

FIELD = "spec.export.behaviour"


def deviation_of(algorithm: str) -> Deviation | None:
    """How far the numbers of its policy may stray, where it learns that."""
    found = find(algorithm)
    return None if found is None or found.deviation is None else Deviation(*found.deviation)


def behaviour_of(order: Order, bounds: Bounds | None) -> Behaviour:
    """How the exported policy acts in an environment with these bounds; raises ConfigError where it cannot."""
    spec, asked, continuous = order.spec, order.spec.export.behaviour, bounds is not None
    if asked is None:
        return usual(spec.algorithm, continuous=continuous)
    try:
        policy.behaviour_of({policy.BEHAVIOUR: asked.model_dump_json(exclude_none=True)}, continuous=continuous)
    except ValueError as error:
        problem = str(error).partition(": ")[2]
        raise ConfigError(FIELD, asked.kind, f"is refused: {problem}", "see kubectl explain") from None
    if asked.kind == "sampled":
        _require_distribution(order, asked, continuous=continuous)
    return asked


def require_judgeable(order: Order, behaviour: Behaviour, bounds: Bounds | None) -> None:
    """Raises ConfigError where gates are set that nothing can pass: without an environment the log alone judges, and it
    compares densities of the numbers that were done."""
    spec = order.spec
    gated = spec.gates.significant or spec.gates.min_return is not None or spec.gates.min_improvement is not None
    if spec.data.environment is not None or bounds is None or behaviour.kind == "sampled" or not gated:
        return
    problem = "has no density of its numbers, so that the log cannot judge it and no gate passes"
    otherwise = "name spec.data.environment, or set no gates (gates.significant: false)"
    if deviation_of(spec.algorithm) is not None:
        raise ConfigError(f"{FIELD}.kind", behaviour.kind, problem, f"set it to sampled, or {otherwise}")
    able = [name for name in FROM_LOG if deviation_of(name) is not None]
    raise ConfigError("spec.algorithm", spec.algorithm, problem, f"set it to one of {', '.join(able)}, or {otherwise}")


def _require_distribution(order: Order, asked: Behaviour, *, continuous: bool) -> None:
    spec, problem, fix = order.spec, "", ""
    if continuous and deviation_of(spec.algorithm) is None:
        problem = f"needs a deviation of the numbers, which {spec.algorithm} does not learn"
        able = ", ".join(one.name for one in traits.registered() if one.deviation is not None)
        fix = f"set kind to greedy, or algorithm to {able}"
    elif continuous and spec.safety is not None:
        problem, fix = "draws numbers after the shield has looked", "set kind to greedy, or remove spec.safety"
    elif values_actions(spec.algorithm) and asked.temperature is None:
        problem = f"needs a temperature: {spec.algorithm} learns values, which are no logits"
        fix = "set temperature, in units of the return, or kind to epsilon-greedy"
    if problem:
        raise ConfigError(f"{FIELD}.kind", asked.kind, problem, fix)
