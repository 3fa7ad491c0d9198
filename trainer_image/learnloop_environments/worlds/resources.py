"""Resource allocation: share three resources among four agents, by need and by fairness.

The action gives each agent's claim on each resource, in [-1, 1]; a softmax turns the claims on one resource into
shares, so every action is feasible. Needs that were not met are partly carried over. The reward is the specification's:

    0.3 (1 - Gini(allocations)) + 0.7 sum_i w_i min(allocation_i, need_i) / sum_i w_i need_i

with the tasks' priorities as weights w. Seen: availability, and of each agent need, priority and what it got last.
An episode succeeds when its mean reward reaches `aim`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Floats64, Level, Outcome, Simulation, box

RESOURCES, CLAIMANTS, SHARPNESS = 3, 4, 3.0


def gini(amounts: Floats64) -> Floats64:
    """Gini coefficient [n] of non-negative amounts [n, k] (Gini, 1912): 0 all equal, (k - 1) / k one has all."""
    ordered, count = np.sort(amounts, axis=1), amounts.shape[1]
    weights = 2.0 * np.arange(1, count + 1) - count - 1
    return np.asarray((ordered * weights).sum(axis=1) / (count * np.maximum(ordered.sum(axis=1), 1e-12)))


class ResourceAllocation(Simulation):
    """n sets of resources with their claimants."""

    observations = RESOURCES + 3 * CLAIMANTS
    actions = RESOURCES * CLAIMANTS
    bounds = box(-1.0, 1.0, RESOURCES * CLAIMANTS)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"scarcity": 0.0, "variation": 0.3, "aim": 0.8, "max_steps": 50}
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("beginner", 0.7),
        Level("intermediate", 0.6, {"variation": 0.6, "aim": 0.75}),
        Level("advanced", 0.5, {"scarcity": 0.2, "variation": 0.8, "aim": 0.65}),
        Level("expert", 0.4, {"scarcity": 0.4, "variation": 1.0, "aim": 0.55}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        body = {name: np.zeros((count, CLAIMANTS)) for name in ("need", "priority", "got")}
        return body | {"available": np.zeros((count, RESOURCES)), "total": np.zeros(count)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        draws = self._draws(seeds, RESOURCES + 2 * CLAIMANTS)
        variation = self.parameter["variation"][which, None]
        self.body["need"][which] = 1.0 + variation * (2.0 * draws[:, :CLAIMANTS] - 1.0)
        self.body["priority"][which] = 1.0 + 2.0 * variation * draws[:, CLAIMANTS : 2 * CLAIMANTS]
        plenty = (CLAIMANTS / RESOURCES) * (1.0 - self.parameter["scarcity"][which, None])
        self.body["available"][which] = plenty * (0.8 + 0.4 * draws[:, 2 * CLAIMANTS :])
        self.body["got"][which] = self.body["total"][which] = 0.0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body = self.body
        claims = np.exp(SHARPNESS * actions.reshape(-1, RESOURCES, CLAIMANTS))
        shares = claims / claims.sum(axis=2, keepdims=True)
        got = body["got"] = (shares * body["available"][..., None]).sum(axis=1)
        met = (body["priority"] * np.minimum(got, body["need"])).sum(axis=1)
        efficiency = met / (body["priority"] * body["need"]).sum(axis=1)
        reward = 0.3 * (1.0 - gini(got)) + 0.7 * efficiency
        body["total"] = body["total"] + reward
        unmet = np.maximum(body["need"] - got, 0.0)
        draws = self._chance(CLAIMANTS)
        fresh = 1.0 + self.parameter["variation"][:, None] * (2.0 * draws - 1.0)
        body["need"] = np.minimum(fresh + 0.3 * unmet, 3.0)
        nobody = np.zeros(len(reward), dtype=np.bool_)
        return Outcome(reward, nobody, nobody)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["total"] >= self.parameter["aim"] * self.parameter["max_steps"])

    def _observe(self) -> Observations:
        parts = [self.body[name] for name in ("available", "need", "priority", "got")]
        return np.concatenate(parts, axis=1).astype(np.float32)
