"""An exported policy, run by the policy server's own code (learnloop_api.acting)."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.acting import onnx_policy
from learnloop_api.acting.policy import PolicyError, choose
from learnloop_api.kinds.behaviour import Behaviour
from learnloop_environments.base import Observations
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.errors import NumericError


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
        results = self._run(observation)
        return results["action"], results["action" if self.continuous else "logits"]

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """Those of the choices [n, choices], of discrete and hybrid policies."""
        return self._run(observation)["logits"]

    def act(self, observation: Observations) -> NDArray[Any]:
        """See Policy: the greedy actions."""
        return self._run(observation)["action"]

    def _run(self, observation: Observations) -> dict[str, NDArray[Any]]:
        try:
            return self.served.run(observation)
        except PolicyError as error:
            raise NumericError(str(error)) from None


class Behaving:
    """The same policy as a policy server acts with it: what is proven is what is served. An evaluation.Drawing."""

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
