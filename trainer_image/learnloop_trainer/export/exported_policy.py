"""Exported policies: how they act, written as graphs, run by onnxruntime, and compared with the trained network."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import GREEDY, Behaviour, usual, values_actions
from learnloop_api.kinds.training.algorithms import FROM_LOG
from learnloop_api.wire.training import Parity
from learnloop_common.acting import onnx_policy, policy
from learnloop_common.acting.policy import ALGORITHM, BEHAVIOUR, BOUNDS, Numbers, PolicyError, choose
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, generator
from learnloop_environments.spaces import MASKED, Bounds, Observations, VectorEnvironment
from learnloop_trainer import action_shield, algorithms, errors, recordings, training_order
from learnloop_trainer.algorithms import base as traits
from learnloop_trainer.export.onnx_graph import Deviation, build
from learnloop_trainer.neural import networks, observation_normalisation

FIELD = "spec.export.behaviour"


def deviation_of(algorithm: str) -> Deviation | None:
    """How far the numbers of its policy may stray, where it learns that."""
    traits = algorithms.find(algorithm)
    return None if traits is None or traits.deviation is None else Deviation(*traits.deviation)


def behaviour_of(order: training_order.Order, bounds: Bounds | None) -> Behaviour:
    """How the exported policy acts in an environment with these bounds; raises ConfigError where it cannot."""
    spec, wanted, continuous = order.spec, order.spec.export.behaviour, bounds is not None
    if wanted is None:
        return usual(spec.algorithm, continuous=continuous)
    try:
        policy.behaviour_of({policy.BEHAVIOUR: wanted.model_dump_json(exclude_none=True)}, continuous=continuous)
    except ValueError as error:
        problem = str(error).partition(": ")[2]
        raise ConfigError(FIELD, wanted.kind, f"is refused: {problem}", "see kubectl explain") from None
    if wanted.kind == "sampled":
        _require_distribution(order, wanted, continuous=continuous)
    return wanted


def require_judgeable(order: training_order.Order, behaviour: Behaviour, bounds: Bounds | None) -> None:
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


def _require_distribution(order: training_order.Order, behaviour: Behaviour, *, continuous: bool) -> None:
    spec, problem, fix = order.spec, "", ""
    if continuous and deviation_of(spec.algorithm) is None:
        problem = f"needs a deviation of the numbers, which {spec.algorithm} does not learn"
        able = ", ".join(one.name for one in traits.registered() if one.deviation is not None)
        fix = f"set kind to greedy, or algorithm to {able}"
    elif continuous and spec.safety is not None:
        problem, fix = "draws numbers after the shield has looked", "set kind to greedy, or remove spec.safety"
    elif values_actions(spec.algorithm) and behaviour.temperature is None:
        problem = f"needs a temperature: {spec.algorithm} learns values, not logits"
        fix = "set temperature, in units of the return, or kind to epsilon-greedy"
    if problem:
        raise ConfigError(f"{FIELD}.kind", behaviour.kind, problem, fix)


# learnloop_common.acting.policy has the same formulas; a test holds the two against each other.

Outputs = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


def choices(behaviour: Behaviour, outputs: Outputs) -> Floats:
    """The probability of each choice [n, choices], from `logits` [n, choices] and the greedy `action`."""
    logits = outputs["logits"].astype(np.float64)
    count, rows = logits.shape[1], np.arange(len(logits))
    best = outputs["action"] if outputs["action"].ndim == 1 else outputs["action"][:, 0].astype(np.int64)
    if behaviour.kind == "sampled":
        raised = np.exp((logits - logits.max(axis=1, keepdims=True)) / (behaviour.temperature or 1.0))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))
    share = (behaviour.epsilon or 0.0) / count if behaviour.kind == "epsilon-greedy" else 0.0
    chances = np.where(logits > policy.FORBIDDEN, share, 0.0)
    chances[rows, best] = 0.0
    chances[rows, best] = 1.0 - chances.sum(axis=1)
    return chances


def log_density(behaviour: Behaviour, numbers: policy.Numbers, outputs: Outputs, action: NDArray[Any]) -> Floats:
    """Of drawn actions [n, numbers], as the environment takes them; of hybrid ones the choice is the first number."""
    first = int(bool(numbers.choices))
    mean, deviation = _spread(behaviour, outputs)
    low, reach = np.asarray(numbers.low), (np.asarray(numbers.high) - np.asarray(numbers.low)) / 2
    squashed = np.clip((action[:, first:] - low - reach) / reach, -policy.EDGE, policy.EDGE)
    error = (np.arctanh(squashed) - mean) / deviation
    parts = -0.5 * error**2 - np.log(deviation) - 0.5 * math.log(2 * math.pi) - np.log(reach * (1 - squashed**2))
    density = np.clip(parts.sum(axis=1), -3e38, policy.LARGEST_LOG_DENSITY)
    if not first:
        return np.asarray(density)
    with np.errstate(divide="ignore"):
        chosen = np.log(choices(behaviour, outputs))
    return np.asarray(density + chosen[np.arange(len(action)), action[:, 0].astype(np.int64)])


def draw(
    behaviour: Behaviour, numbers: policy.Numbers, outputs: Outputs, random: np.random.Generator
) -> NDArray[np.float32]:
    """One action [n, numbers] for each row."""
    mean, deviation = _spread(behaviour, outputs)
    low, high = np.asarray(numbers.low), np.asarray(numbers.high)
    squashed = np.tanh(mean + deviation * random.standard_normal(mean.shape))
    drawn = np.clip((low + high) / 2 + (high - low) / 2 * squashed, low, high)
    if not numbers.choices:
        return np.asarray(drawn, dtype=np.float32)
    cumulated = choices(behaviour, outputs).cumsum(axis=1)
    chosen = (cumulated < random.random((len(mean), 1))).sum(axis=1).clip(max=numbers.choices - 1)
    return np.asarray(np.concatenate((chosen[:, None], drawn), axis=1), dtype=np.float32)


def _spread(behaviour: Behaviour, outputs: Outputs) -> tuple[Floats, Floats]:
    rate = behaviour.temperature or 1.0
    return outputs["mean"].astype(np.float64), outputs["deviation"].astype(np.float64) * rate


class OnnxPolicy:
    """The greedy policy of a graph with learnloop's signature, in an environment of known spaces."""

    def __init__(self, body: bytes, observations: int, actions: int, *, continuous: bool = False) -> None:
        """Raises ValueError, in one sentence, when it is not such a graph or its spaces differ."""
        self.served = onnx_policy.OnnxPolicy(body, int(os.environ.get("OMP_NUM_THREADS", "1")))
        if self.served.observations != observations:
            raise ValueError(f"takes {self.served.observations} observations, the environment has {observations}")
        if self.served.continuous != continuous:
            kinds = ("numbers", "choices") if self.served.continuous else ("choices", "numbers")
            raise ValueError(f"has {kinds[0]} as actions, the environment {kinds[1]}")
        if self.served.actions != actions:
            raise ValueError(f"has {self.served.actions} actions, the environment has {actions}")
        self.continuous, self.hybrid = continuous, self.served.hybrid

    @property
    def behaviour(self) -> Behaviour:
        return self.served.behaviour

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions [n] and logits [n, actions] for observations [n, observations]; continuous actions stand for both."""
        results = self.outputs(observation)
        return results["action"], results["action" if self.continuous else "logits"]

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """Those of the choices [n, choices], of discrete and hybrid policies."""
        return self.outputs(observation)["logits"]

    def act(self, observation: Observations) -> NDArray[Any]:
        return self.outputs(observation)["action"]

    def outputs(self, observation: Observations, memory: Observations | None = None) -> dict[str, NDArray[Any]]:
        """All that the graph says of observations [n, observations], by name; raises NumericError.

        `memory`: see policy.Policy.run.
        """
        try:
            return self.served.run(observation, memory)
        except PolicyError as error:
            raise errors.NumericError(str(error)) from None


ROWS = 65_536  # run in one batch
DRAWS = 8
"""Actions that stand for all that a policy with numbers may do."""


class Behaving:
    """The same policy as a policy server acts with it: what is proven is what is served.

    An evaluation.Drawing, and an off-policy Target.
    """

    def __init__(self, policy: OnnxPolicy, seed: int, *, explore: bool = True) -> None:
        """Its draws depend on the seed, and on the episodes that `begin` names. `explore`: False: greedily."""
        self._policy, self._seed, self._explore = policy, seed, explore
        self.replaced: NDArray[np.bool_] | None = None
        """Flags of the newest actions that are the shield's; None: the policy has none."""
        self.begin(0)

    @property
    def draws(self) -> bool:
        return self._explore and self._policy.behaviour.kind != "greedy"

    def begin(self, first: int) -> None:
        self._random = generator(Purpose.BEHAVIOUR, self._seed, first)
        self._memory: Observations | None = None  # a row for each episode, of a policy that remembers

    def act(self, observation: Observations) -> NDArray[Any]:
        served, random = self._policy.served, self._random.random
        try:
            decisions = choose(served, observation, random, explore=self._explore, memory=self._memory)
        except PolicyError as error:
            raise errors.NumericError(str(error)) from None
        if served.memory:
            self._memory = np.asarray([decision.memory for decision in decisions], dtype=np.float32)
        if decisions[0].intervened is not None:
            self.replaced = np.asarray([bool(decision.intervened) for decision in decisions])
        kind = np.float32 if self._policy.continuous else np.int64
        return np.asarray([decision.action for decision in decisions], dtype=kind)

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> NDArray[np.float64]:
        numbers, outputs = self._policy.served.numbers, self._outputs(observation)
        if not self._policy.continuous:
            rows = np.arange(len(observation))
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(choices(self._policy.behaviour, outputs))[rows, action])
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return np.full(len(observation), np.nan)
        return log_density(self._policy.behaviour, numbers, outputs, action)

    def mixture(self, observation: Observations) -> recordings.Mixture:
        outputs, count = self._outputs(observation), len(observation)
        if not self._policy.continuous:
            weight = choices(self._policy.behaviour, outputs)
            return recordings.Mixture(np.tile(np.arange(weight.shape[1]), (count, 1)), weight)
        numbers = self._policy.served.numbers
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return recordings.Mixture(outputs["action"][:, None], np.ones((count, 1)))
        random = generator(Purpose.BEHAVIOUR, self._seed, 1)
        drawn = [draw(self._policy.behaviour, numbers, outputs, random) for _ in range(DRAWS)]
        return recordings.Mixture(np.stack(drawn, axis=1), np.full((count, DRAWS), 1.0 / DRAWS))

    def _outputs(self, observation: Observations) -> dict[str, NDArray[Any]]:
        parts = [self._policy.outputs(observation[at : at + ROWS]) for at in range(0, len(observation), ROWS)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


BATCHES = (1, 3, 17)
TOLERANCE = 1e-5  # of the largest logit's size, at least 1: a few units in the last place of float32
Logits = NDArray[np.float32]


class Exported(Protocol):
    """A policy as it was written down, loaded again."""

    continuous: bool
    hybrid: bool  # continuous, and the first number is a choice

    def run(self, observation: Observations) -> tuple[NDArray[Any], Logits]:
        """Actions [n] and logits [n, actions] for observations [n, observations]; continuous actions stand for both."""

    def logits(self, observation: Observations) -> Logits:
        """Those of the choices [n, choices]."""


def _unmasked(logits: Logits) -> Logits:
    """Logits with those of forbidden actions at 0: they carry no size, and both sides put them in the same places."""
    return np.where(logits <= MASKED, np.float32(0), logits)


def _tied(logits: Logits, tolerance: float) -> NDArray[np.bool_]:
    ordered = np.sort(logits, axis=1)
    return ordered[:, -1] - ordered[:, -2] <= 2 * tolerance if logits.shape[1] > 1 else np.ones(len(logits), bool)


def _near(action: NDArray[Any], expected: Logits, tolerance: float) -> NDArray[np.bool_]:
    return np.asarray(np.abs(action - expected).max(axis=1) <= tolerance)


def _chosen(action: NDArray[Any], expected: Logits, tolerance: float) -> NDArray[np.bool_]:
    return np.asarray((action == expected.argmax(axis=1)) | _tied(expected, tolerance))


def tolerance_of(outputs: Logits) -> float:
    return TOLERANCE * max(1.0, float(np.abs(_unmasked(outputs)).max()))


def check(
    network: Callable[[Observations], Logits],
    policy: Exported,
    observations: Observations,
    recorded: int,
    unsure: NDArray[np.bool_] | None = None,
) -> Parity:
    """Run both on all observations [m, observations] at batch sizes 1, 3 and 17 and compare.

    Passed means: no output differs by more than the tolerance, and every action agrees unless the two best logits are
    closer together than rounding can tell. Continuous actions are themselves the outputs compared; so are hybrid ones,
    but where their two best choices are that close. `unsure`: rows [m] that rounding may change altogether.
    """
    expected = network(observations)
    tolerance = tolerance_of(expected)
    worst, agreed = 0.0, np.ones(len(observations), dtype=np.bool_)
    sure = agreed.copy() if unsure is None else ~unsure
    for size in BATCHES:
        pieces = [policy.run(observations[at : at + size]) for at in range(0, len(observations), size)]
        action = np.concatenate([piece[0] for piece in pieces])
        outputs = np.concatenate([piece[1] for piece in pieces])
        if policy.hybrid:
            tied = _tied(policy.logits(observations), tolerance)[:, None]
            action = outputs = np.where(tied, expected, outputs)
        apart = np.abs(outputs - expected)[sure].max(initial=0.0)
        worst = max(worst, float(apart) if np.isfinite(outputs).all() else float(np.finfo(np.float32).max))
        agreed &= (_near if policy.continuous else _chosen)(action, expected, tolerance) | ~sure
    return Parity(
        observations=len(observations),
        recorded=recorded,
        max_abs_difference=worst,
        action_agreement=float(agreed.mean()),
        passed=worst <= tolerance and bool(agreed.all()),
    )


Weights = Mapping[str, NDArray[np.float32]]


def trained(
    network: networks.Network, algorithm: str, bounds: Bounds | None = None, shield: action_shield.Shield | None = None
) -> Callable[[Observations], NDArray[np.float32]]:
    """The trained network as a function from observations [n, observations] to logits or, with bounds, actions."""
    traits = algorithms.traits_of(algorithm)

    def outputs(observation: Observations) -> NDArray[np.float32]:
        with torch.no_grad():
            inputs = np.ascontiguousarray(observation_normalisation.normalised(network.fixed, observation))
            batch = torch.from_numpy(inputs).to(network.vector.device)
            result = traits.act(network.leaves, batch)
            if bounds is None:
                logits = np.asarray(result.cpu().numpy())
                return logits if shield is None else shield.mask(observation, logits)[0]
            action = bounds.greedy(np.asarray(result.cpu().numpy()))
            return action if shield is None else np.asarray(shield.project(observation, action)[0], dtype=np.float32)

    return outputs


def graph(
    arrays: Weights,
    algorithm: str,
    facts: Mapping[str, str],
    bounds: Bounds | None,
    shield: action_shield.Shield | None,
    behaviour: Behaviour = GREEDY,
) -> bytes:
    """A policy with these weights as an ONNX graph with these facts in its metadata, how it acts among them."""
    traits = algorithms.traits_of(algorithm)
    properties = {BEHAVIOUR: behaviour.model_dump_json(exclude_none=True)}
    deviation = None
    if bounds is not None and behaviour.kind == "sampled":
        first = int(bool(bounds.choices))
        low, high = (tuple(side[first:].tolist()) for side in (bounds.low, bounds.high))
        properties[BOUNDS] = Numbers(low, high, bounds.choices).written()
        deviation = deviation_of(algorithm)
    head, activation = traits.network
    return build(arrays, head, activation, dict(facts) | properties, bounds, shield, traits.chooser, deviation)


def shield_of(order: training_order.Order, environment: VectorEnvironment) -> action_shield.Shield | None:
    """The shield that the exported policy has in its graph."""
    if order.spec.safety is None:
        return None
    bounds, spaces = environment.bounds, (environment.observations, environment.actions)
    continuous, policy = bounds is not None, order.fallback
    return action_shield.Shield(order.spec.safety, *spaces, continuous=continuous, policy=policy, bounds=bounds)


def written(order: training_order.Order, environment: VectorEnvironment, weights: Weights) -> tuple[bytes, OnnxPolicy]:
    """A policy with these weights as the order exports it: its file, and what the file does; raises NumericError."""
    algorithm, bounds = order.spec.algorithm, environment.bounds
    facts = {ALGORITHM: algorithm, "learnloop.job": order.job}
    behaviour = behaviour_of(order, bounds)
    body = graph(weights, algorithm, facts, bounds, shield_of(order, environment), behaviour)
    try:
        return body, OnnxPolicy(body, environment.observations, environment.actions, continuous=bounds is not None)
    except ValueError as error:
        raise errors.NumericError(f"the exported policy: {error}") from None
