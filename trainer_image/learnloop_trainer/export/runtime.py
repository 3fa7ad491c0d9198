"""An exported policy, run by the policy server's own code (learnloop_common.acting)."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_common.acting import onnx_policy
from learnloop_common.acting.policy import PolicyError, choose
from learnloop_environments.base import Observations
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.errors import NumericError
from learnloop_trainer.export import distribution
from learnloop_trainer.recordings.target_policy import Mixture


class OnnxPolicy:
    """The greedy policy of a graph with learnloop's signature, in an environment of known spaces."""

    def __init__(self, body: bytes, observations: int, actions: int, *, continuous: bool = False) -> None:
        """Raises ValueError, in one sentence, when it is no such graph or its spaces differ."""
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
        """How it acts where it is served."""
        return self.served.behaviour

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions [n] and logits [n, actions] for observations [n, observations]; continuous actions stand for both."""
        results = self.told(observation)
        return results["action"], results["action" if self.continuous else "logits"]

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """Those of the choices [n, choices], of discrete and hybrid policies."""
        return self.told(observation)["logits"]

    def act(self, observation: Observations) -> NDArray[Any]:
        """See Policy: the greedy actions."""
        return self.told(observation)["action"]

    def told(self, observation: Observations) -> dict[str, NDArray[Any]]:
        """All that the graph says of observations [n, observations], by name; raises NumericError."""
        try:
            return self.served.run(observation)
        except PolicyError as error:
            raise NumericError(str(error)) from None


ROWS = 65_536  # asked at once
DRAWS = 8
"""Actions that stand for all that a policy with numbers may do."""


class Behaving:
    """The same policy as a policy server acts with it: what is proven is what is served.

    An evaluation.Drawing, and an off-policy Target.
    """

    def __init__(self, policy: OnnxPolicy, seed: int) -> None:
        """What it draws depends on the seed, and on the episodes that `begin` names."""
        self._policy, self._seed = policy, seed
        self.begin(0)

    def begin(self, first: int) -> None:
        """See Drawing."""
        self._random = generator(Purpose.BEHAVIOUR, self._seed, first)

    def act(self, observation: Observations) -> NDArray[Any]:
        """See Policy."""
        try:
            decisions = choose(self._policy.served, observation, self._random.random)
        except PolicyError as error:
            raise NumericError(str(error)) from None
        kind = np.float32 if self._policy.continuous else np.int64
        return np.asarray([decision.action for decision in decisions], dtype=kind)

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> NDArray[np.float64]:
        """See Target."""
        numbers, found = self._policy.served.numbers, self._said(observation)
        if not self._policy.continuous:
            rows = np.arange(len(observation))
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(distribution.choices(self._policy.behaviour, found))[rows, action])
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return np.full(len(observation), np.nan)
        return distribution.log_density(self._policy.behaviour, numbers, found, action)

    def mixture(self, observation: Observations) -> Mixture:
        """See Target."""
        found, count = self._said(observation), len(observation)
        if not self._policy.continuous:
            weight = distribution.choices(self._policy.behaviour, found)
            return Mixture(np.tile(np.arange(weight.shape[1]), (count, 1)), weight)
        numbers = self._policy.served.numbers
        if numbers is None or self._policy.behaviour.kind != "sampled":
            return Mixture(found["action"][:, None], np.ones((count, 1)))
        random = generator(Purpose.BEHAVIOUR, self._seed, 1)
        drawn = [distribution.draw(self._policy.behaviour, numbers, found, random) for _ in range(DRAWS)]
        return Mixture(np.stack(drawn, axis=1), np.full((count, DRAWS), 1.0 / DRAWS))

    def _said(self, observation: Observations) -> dict[str, NDArray[Any]]:
        """What the network says of all rows."""
        parts = [self._policy.told(observation[at : at + ROWS]) for at in range(0, len(observation), ROWS)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
