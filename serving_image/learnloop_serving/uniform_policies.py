"""The policies before anything was learned, and how long a policy takes."""

import time
from dataclasses import dataclass

import numpy as np

from learnloop_api.kinds.behaviour import SAMPLED, Behaviour
from learnloop_api.uniform_policy import UniformSpaces
from learnloop_common.acting.metadata import Numbers
from learnloop_common.acting.policy import Observations, Policy, Results


@dataclass(frozen=True)
class UniformPolicy:
    """Every action equally likely: the honest baseline before anything was learned."""

    actions: int
    observations: int | None
    platform: str = "learnloop_uniform"
    continuous: bool = False
    behaviour: Behaviour = SAMPLED
    numbers: None = None

    def run(self, observation: Observations) -> Results:
        """See Policy.run. All logits are 0; the greedy action is 0 by the usual tie rule."""
        batch = observation.shape[0]
        return {
            "action": np.zeros(batch, dtype=np.int64),
            "logits": np.zeros((batch, self.actions), dtype=np.float32),
        }


class UniformNumbers:
    """Numbers drawn uniformly within their bounds; hybrid: a choice before them, each as likely."""

    platform = "learnloop_uniform"
    continuous = True
    behaviour = SAMPLED

    def __init__(self, numbers: Numbers, observations: int | None) -> None:
        """Without a mean and a deviation in what `run` gives, numbers are drawn from their bounds."""
        self.numbers, self.observations, self.actions = numbers, observations, numbers.dimensions
        low, high = (np.asarray(side, dtype=np.float64) for side in (numbers.low, numbers.high))
        choice = [0.0] if numbers.choices else []
        self._centre = np.concatenate((choice, low / 2 + high / 2)).astype(np.float32)

    def run(self, observation: Observations) -> Results:
        """See Policy.run. The greedy action is the middle of all bounds, and the first choice by the usual tie rule."""
        batch = observation.shape[0]
        results = {"action": np.tile(self._centre, (batch, 1))}
        if self.numbers.choices:
            results["logits"] = np.zeros((batch, self.numbers.choices), dtype=np.float32)
        return results


def uniform(spaces: UniformSpaces) -> Policy:
    """Anything that these spaces have, each as likely."""
    if not spaces.low:
        return UniformPolicy(spaces.choices, spaces.observations)
    return UniformNumbers(Numbers(spaces.low, spaces.high, spaces.choices), spaces.observations)


def measure(policy: Policy) -> float:
    """Seconds one observation takes, the median of five runs after a warm-up."""
    observation = np.zeros((1, policy.observations or 1), dtype=np.float32)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        policy.run(observation)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2]
