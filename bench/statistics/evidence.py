"""The operator's `comparison.look` for thousands of rollouts at once.

The same formulas on arrays and nothing else; `agreement` proves on whole rollouts that they give the same numbers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_operator.core.sequential import comparison
from learnloop_operator.core.sequential.betting import BISECTIONS
from learnloop_operator.core.sequential.comparison import Bars

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
CANARY_N, CANARY_SUM, STABLE_N, STABLE_SUM = range(4)


@dataclass(slots=True)
class Memories:
    """`comparison.Memory` of each rollout; `seen` and `judged` have the shape [4, rollouts]."""

    seen: Floats
    judged: Floats
    worse: Floats
    fine: Floats

    @classmethod
    def fresh(cls, rollouts: int) -> "Memories":
        """Every rollout has looked once, before any episode."""
        zeros = np.zeros((4, rollouts))
        return cls(zeros, zeros.copy(), np.zeros(rollouts), np.zeros(rollouts))


def look(memories: Memories, seen: Floats, max_drop: float, bar: Bars, concurrent: Bools) -> None:
    """One look of every rollout, in place."""
    batch = seen - memories.seen
    enough = np.maximum(comparison.BATCH, comparison.GROWTH * memories.judged[CANARY_N])
    due = np.flatnonzero(concurrent & (batch[CANARY_N] >= enough) & (batch[STABLE_N] >= 1.0))
    if due.size == 0:
        return
    new, judged = batch[:, due], memories.judged[:, due]
    canary, stable = _expected(judged)
    memories.worse[due] += _log_e(new[2:], new[:2], stable, canary, 0.0)
    fine = memories.fine[due] + _log_e(new[:2], new[2:], canary, stable, -max_drop)
    memories.fine[due] = np.minimum(fine, bar.fine + comparison.CREDIT)
    memories.judged[:, due] = judged + new
    memories.seen[:, due] = seen[:, due]


def _expected(judged: Floats) -> tuple[Floats, Floats]:
    canary_n, canary, stable_n, stable = judged
    pool = (canary + stable + 1.0) / (canary_n + stable_n + 2.0)
    shrink = comparison.SHRINK
    return (canary + shrink * pool) / (canary_n + shrink), (stable + shrink * pool) / (stable_n + shrink)


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


def _gain(seen: Floats, p: Floats, q: Floats) -> Floats:
    gain: Floats = seen[1] * np.log(p / q) + (seen[0] - seen[1]) * np.log((1.0 - p) / (1.0 - q))
    return gain
