"""The policy before anything was learned, and how long a policy takes."""

import time
from dataclasses import dataclass

import numpy as np

from learnloop_api.acting.policy import Observations, Policy, Results
from learnloop_api.kinds.behaviour import SAMPLED, Behaviour


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


def measure(policy: Policy) -> float:
    """Seconds one observation takes, the median of five runs after a warm-up."""
    observation = np.zeros((1, policy.observations or 1), dtype=np.float32)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        policy.run(observation)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2]
