"""Exported policies: written as graphs, run by onnxruntime, and compared with the trained network."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import GREEDY, Behaviour
from learnloop_api.wire.training import Parity
from learnloop_common.acting import onnx_policy
from learnloop_common.acting.policy import ALGORITHM, BEHAVIOUR, BOUNDS, Numbers, PolicyError, choose
from learnloop_environments.base import MASKED, Bounds, Observations, VectorEnvironment
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.errors import NumericError
from learnloop_trainer.export import behaviour as distribution
from learnloop_trainer.export.graph import build
from learnloop_trainer.neural.networks import Network
from learnloop_trainer.neural.observation_normalisation import normalised
from learnloop_trainer.recordings import Mixture
from learnloop_trainer.safety.shield import Shield
from learnloop_trainer.training_order import Order


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
        results = self.told(observation)
        return results["action"], results["action" if self.continuous else "logits"]

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """Those of the choices [n, choices], of discrete and hybrid policies."""
        return self.told(observation)["logits"]

    def act(self, observation: Observations) -> NDArray[Any]:
        return self.told(observation)["action"]

    def told(self, observation: Observations) -> dict[str, NDArray[Any]]:
        """All that the graph says of observations [n, observations], by name; raises NumericError."""
        try:
            return self.served.run(observation)
        except PolicyError as error:
            raise NumericError(str(error)) from None


ROWS = 65_536  # run in one batch
DRAWS = 8
"""Actions that stand for all that a policy with numbers may do."""


class Behaving:
    """The same policy as a policy server acts with it: what is proven is what is served.

    An evaluation.Drawing, and an off-policy Target.
    """

    def __init__(self, policy: OnnxPolicy, seed: int) -> None:
        """Its draws depend on the seed, and on the episodes that `begin` names."""
        self._policy, self._seed = policy, seed
        self.begin(0)

    def begin(self, first: int) -> None:
        self._random = generator(Purpose.BEHAVIOUR, self._seed, first)

    def act(self, observation: Observations) -> NDArray[Any]:
        try:
            decisions = choose(self._policy.served, observation, self._random.random)
        except PolicyError as error:
            raise NumericError(str(error)) from None
        kind = np.float32 if self._policy.continuous else np.int64
        return np.asarray([decision.action for decision in decisions], dtype=kind)

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> NDArray[np.float64]:
        numbers, outputs = self._policy.served.numbers, self._said(observation)
        if not self._policy.continuous:
            rows = np.arange(len(observation))
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(distribution.choices(self._policy.behaviour, outputs))[rows, action])
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return np.full(len(observation), np.nan)
        return distribution.log_density(self._policy.behaviour, numbers, outputs, action)

    def mixture(self, observation: Observations) -> Mixture:
        outputs, count = self._said(observation), len(observation)
        if not self._policy.continuous:
            weight = distribution.choices(self._policy.behaviour, outputs)
            return Mixture(np.tile(np.arange(weight.shape[1]), (count, 1)), weight)
        numbers = self._policy.served.numbers
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return Mixture(outputs["action"][:, None], np.ones((count, 1)))
        random = generator(Purpose.BEHAVIOUR, self._seed, 1)
        drawn = [distribution.draw(self._policy.behaviour, numbers, outputs, random) for _ in range(DRAWS)]
        return Mixture(np.stack(drawn, axis=1), np.full((count, DRAWS), 1.0 / DRAWS))

    def _said(self, observation: Observations) -> dict[str, NDArray[Any]]:
        parts = [self._policy.told(observation[at : at + ROWS]) for at in range(0, len(observation), ROWS)]
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


def check(
    network: Callable[[Observations], Logits], policy: Exported, observations: Observations, recorded: int
) -> Parity:
    """Run both on all observations [m, observations] at batch sizes 1, 3 and 17 and compare.

    Passed means: no output differs by more than the tolerance, and every action agrees unless the two best logits are
    closer together than rounding can tell. Continuous actions are themselves the outputs compared; so are hybrid ones,
    but where their two best choices are that close.
    """
    expected = network(observations)
    tolerance = TOLERANCE * max(1.0, float(np.abs(_unmasked(expected)).max()))
    worst, agreed = 0.0, np.ones(len(observations), dtype=np.bool_)
    for size in BATCHES:
        pieces = [policy.run(observations[at : at + size]) for at in range(0, len(observations), size)]
        action = np.concatenate([piece[0] for piece in pieces])
        outputs = np.concatenate([piece[1] for piece in pieces])
        if policy.hybrid:
            tied = _tied(policy.logits(observations), tolerance)[:, None]
            action = outputs = np.where(tied, expected, outputs)
        difference = np.abs(outputs - expected).max() if np.isfinite(outputs).all() else np.finfo(np.float32).max
        worst = max(worst, float(difference))
        agreed &= (_near if policy.continuous else _chosen)(action, expected, tolerance)
    return Parity(
        observations=len(observations),
        recorded=recorded,
        max_abs_difference=worst,
        action_agreement=float(agreed.mean()),
        passed=worst <= tolerance and bool(agreed.all()),
    )


Weights = Mapping[str, NDArray[np.float32]]


def trained(
    network: Network, algorithm: str, bounds: Bounds | None = None, shield: Shield | None = None
) -> Callable[[Observations], NDArray[np.float32]]:
    """The trained network as a function from observations [n, observations] to logits or, with bounds, actions."""
    traits = traits_of(algorithm)

    def outputs(observation: Observations) -> NDArray[np.float32]:
        with torch.no_grad():
            inputs = np.ascontiguousarray(normalised(network.fixed, observation))
            batch = torch.from_numpy(inputs).to(network.vector.device)
            result = traits.act(network.leaves, batch)
            if bounds is None:
                logits = np.asarray(result.cpu().numpy())
                return logits if shield is None else shield.mask(observation, logits)
            action = bounds.greedy(np.asarray(result.cpu().numpy()))
            return action if shield is None else np.asarray(shield.project(observation, action)[0], dtype=np.float32)

    return outputs


def graph(
    arrays: Weights,
    algorithm: str,
    facts: Mapping[str, str],
    bounds: Bounds | None,
    shield: Shield | None,
    behaviour: Behaviour = GREEDY,
) -> bytes:
    """A policy with these weights as an ONNX graph with these facts in its metadata, how it acts among them."""
    traits = traits_of(algorithm)
    properties = {BEHAVIOUR: behaviour.model_dump_json(exclude_none=True)}
    deviation = None
    if bounds is not None and behaviour.kind == "sampled":
        first = int(bool(bounds.choices))
        low, high = (tuple(side[first:].tolist()) for side in (bounds.low, bounds.high))
        properties[BOUNDS] = Numbers(low, high, bounds.choices).written()
        deviation = distribution.deviation_of(algorithm)
    head, activation = traits.network
    return build(arrays, head, activation, dict(facts) | properties, bounds, shield, traits.chooser, deviation)


def shield_of(order: Order, environment: VectorEnvironment) -> Shield | None:
    """The shield that the exported policy has in its graph."""
    if order.spec.safety is None:
        return None
    continuous = environment.bounds is not None
    return Shield(order.spec.safety, environment.observations, environment.actions, continuous=continuous)


def written(order: Order, environment: VectorEnvironment, weights: Weights) -> tuple[bytes, OnnxPolicy]:
    """A policy with these weights as the order exports it: its file, and what the file does; raises NumericError."""
    algorithm, bounds = order.spec.algorithm, environment.bounds
    facts = {ALGORITHM: algorithm, "learnloop.job": order.job}
    behaviour = distribution.behaviour_of(order, bounds)
    body = graph(weights, algorithm, facts, bounds, shield_of(order, environment), behaviour)
    try:
        return body, OnnxPolicy(body, environment.observations, environment.actions, continuous=bounds is not None)
    except ValueError as error:
        raise NumericError(f"the exported policy: {error}") from None
