"""The operator's `comparison.look` for thousands of rollouts as arrays.

The same formulas on arrays and nothing else; `agreement` proves on whole rollouts that they give the same numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_operator.statistics import canary_against_stable as comparison
from learnloop_operator.statistics.canary_against_stable import Bars
from learnloop_operator.statistics.e_values import BISECTIONS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
CANARY_N, CANARY_SUM, STABLE_N, STABLE_SUM = range(4)
Feared = Callable[[Floats, float], tuple[Floats, Floats]]
"""The rates (canary, stable) to bet on against "as good as stable", from the outcomes judged so far and maxDrop."""


@dataclass(slots=True)
class Memories:
    """`comparison.Memory` of each rollout; `counted` and `judged` have the shape [4, rollouts]."""

    counted: Floats
    judged: Floats
    worse: Floats
    fine: Floats

    @classmethod
    def fresh(cls, rollouts: int) -> "Memories":
        """Every rollout has looked once, before any episode."""
        zeros = np.zeros((4, rollouts))
        return cls(zeros, zeros.copy(), np.zeros(rollouts), np.zeros(rollouts))


def feared(judged: Floats, max_drop: float) -> tuple[Floats, Floats]:
    """`comparison.feared`; `judged` has the shape [4, rollouts]."""
    pool, drop, n = _pooled(judged), comparison.SOUGHT * max_drop, judged[CANARY_N] + judged[STABLE_N]
    edge = 0.5 / (n + 1.0)
    share = np.where(n > 0.0, judged[CANARY_N] / np.maximum(n, 1.0), 0.5)
    low, high = np.maximum(edge, pool - (1.0 - share) * drop), np.minimum(1.0 - edge, pool + share * drop)
    return _drawn(judged[:2], low, comparison.INSISTS), _drawn(judged[2:], high, comparison.INSISTS)


def look(
    memories: Memories, counts: Floats, max_drop: float, bar: Bars, concurrent: Bools, fear: Feared = feared
) -> None:
    """One look of every rollout, in place; `fear`: what is bet on against "as good as stable"."""
    batch = counts - memories.counted
    enough = np.maximum(comparison.BATCH, comparison.GROWTH * memories.judged[CANARY_N])
    due = np.flatnonzero(concurrent & (batch[CANARY_N] >= enough) & (batch[STABLE_N] >= 1.0))
    if due.size == 0:
        return
    new, judged = batch[:, due], memories.judged[:, due]
    canary, stable = fear(judged, max_drop)
    memories.worse[due] += _log_e(new[2:], new[:2], stable, canary, 0.0)
    canary, stable = _expected(judged)
    fine = memories.fine[due] + _log_e(new[:2], new[2:], canary, stable, -max_drop)
    memories.fine[due] = np.minimum(fine, bar.fine + comparison.CREDIT)
    memories.judged[:, due] = judged + new
    memories.counted[:, due] = counts[:, due]


def _expected(judged: Floats) -> tuple[Floats, Floats]:
    pool = _pooled(judged)
    return _drawn(judged[:2], pool, comparison.SHRINK), _drawn(judged[2:], pool, comparison.SHRINK)


def _pooled(judged: Floats) -> Floats:
    pooled: Floats = (judged[CANARY_SUM] + judged[STABLE_SUM] + 1.0) / (judged[CANARY_N] + judged[STABLE_N] + 2.0)
    return pooled


def _drawn(counts: Floats, rate: Floats, weight: float) -> Floats:
    drawn: Floats = (counts[1] + weight * rate) / (counts[0] + weight)
    return drawn


def _log_e(a: Floats, b: Floats, p_a: Floats, p_b: Floats, margin: float) -> Floats:
    bets = p_a > p_b + margin
    q_a, q_b = _nearest(a[0], b[0], p_a, p_b, margin)
    return np.where(bets, _gain(a, p_a, q_a) + _gain(b, p_b, q_b), 0.0)


def _nearest(n_a: Floats, n_b: Floats, p_a: Floats, p_b: Floats, margin: float) -> tuple[Floats, Floats]:
    if margin == 0.0:
        q = (n_a * p_a + n_b * p_b) / (n_a + n_b)
        return q, q
    low = np.full_like(p_a, max(0.0, -margin))
    high = np.full_like(p_a, min(1.0, 1.0 - margin))
    for _ in range(BISECTIONS):
        q = 0.5 * (low + high)
        up = q + margin
        above = n_a * (up - p_a) / (up * (1.0 - up)) + n_b * (q - p_b) / (q * (1.0 - q)) > 0.0
        high = np.where(above, q, high)
        low = np.where(above, low, q)
    q = 0.5 * (low + high)
    return q + margin, q


def _gain(counts: Floats, p: Floats, q: Floats) -> Floats:
    gain: Floats = counts[1] * np.log(p / q) + (counts[0] - counts[1]) * np.log((1.0 - p) / (1.0 - q))
    return gain
