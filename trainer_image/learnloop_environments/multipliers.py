"""Multipliers of a RewardPolicy's constraints, learned by dual ascent.

PPO-Lagrangian of Ray, Achiam & Amodei (2019), "Benchmarking safe exploration in deep reinforcement learning", section
4: for an episode's reward R, its outcome values C_i and their limits d_i, find

    max_policy min_{lambda >= 0}  E[R] - sum_i lambda_i (E[C_i] - d_i)

The policy learns from (r - sum_i lambda_i c_i) / (1 + sum_i lambda_i), where c_i is what a step adds to C_i. After each
update lambda_i <- max(0, lambda_i + rate (mean C_i - d_i)), over the episodes that ended on all ranks. The division
keeps rewards in one range while multipliers grow (Stooke, Achiam & Abbeel, 2020, arXiv 2007.03964, equation 8).

Deviations: one value function learns the penalised reward, where Ray et al. have another one for costs; of Stooke's
controller there is the integral term alone.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import SafetyConstraint

Floats64 = NDArray[np.float64]


class Multipliers:
    """One for each constraint, the same on all ranks."""

    def __init__(self, constraints: Sequence[SafetyConstraint], rate: float) -> None:
        """They begin at 0; `rate`: of the ascent."""
        self.constraints, self.keys = constraints, [one.key for one in constraints]
        self._limits, self._rate = np.asarray([one.maximum for one in constraints]), rate
        self.values = np.zeros(len(constraints))
        self._cost, self._episodes = np.zeros(len(constraints)), 0
        self._reported = np.zeros(len(constraints))

    def measured(self, number: int) -> bool:
        """Whether an episode of this rank has reported the outcome value of a constraint."""
        return bool(self._reported[number] > 0 or self.values[number] > 0)

    def penalised(self, reward: Floats64, cost: Floats64) -> Floats64:
        """Rewards [n], of a team [n, agents], less what the steps cost [n, constraints]."""
        penalty = cost @ self.values
        less = reward - (penalty if reward.ndim == 1 else penalty[:, None])
        return np.asarray(less / (1.0 + self.values.sum()))

    def ended(self, cost: Floats64) -> None:
        """An episode has ended, with these outcome values [constraints], NaN where one is missing."""
        self._reported += ~np.isnan(cost)
        self._cost += np.nan_to_num(cost)
        self._episodes += 1

    def ascend(self, total: Callable[[list[float]], Sequence[float]]) -> dict[str, float]:
        """Collective, `total` adds up over all ranks: one step by the episodes since the last one, and its figures.

        A missing value counts 0. One that no episode has had yet has neither a step nor a figure.
        """
        sums = total([float(self._episodes), *self._cost.tolist(), *self._reported.tolist()])
        episodes, cost, reported = sums[0], *np.split(np.asarray(sums[1:]), 2)
        self._cost[:], self._episodes = 0.0, 0
        if not episodes:
            return {}
        excess, measured = cost / episodes - self._limits, (reported > 0) | (self.values > 0)
        self.values = np.where(measured, np.maximum(0.0, self.values + self._rate * excess), self.values)
        figures = {"multiplier": float(self.values.sum())}
        return figures | ({"constraint_excess": float(excess[measured].max())} if measured.any() else {})
