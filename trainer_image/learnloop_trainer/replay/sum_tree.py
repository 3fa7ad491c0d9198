"""Prioritised sampling: a sum tree in one numpy array, all samples of a batch walked down together.

Schaul, Quan, Antonoglou & Silver (2016), arXiv 1511.05952, section 3.3, equation 1 (proportional variant) and
appendix B.2.1; with N transitions of priority p_i:

    P(i) = p_i^alpha / sum_k p_k^alpha,    p_i = |delta_i| + epsilon,    w_i = (N P(i))^-beta / max_j w_j

Deviations: the largest weight is taken over the batch, as in the authors' code; a new transition gets the largest
priority seen so far. Every parent is the sum of its two children and never a running total, so nothing drifts and a
tree rebuilt from its leaves is equal to the last bit.
"""

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-6
Floats64 = NDArray[np.float64]
Indices = NDArray[np.int64]


class SumTree:
    """Non-negative numbers with their sum, in a complete binary tree; node i has the children 2i and 2i + 1."""

    def __init__(self, capacity: int) -> None:
        """`capacity` leaves of 0."""
        self._depth = max(0, (capacity - 1).bit_length())
        self._first = 1 << self._depth
        self.capacity = capacity
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._nodes[1])

    def values(self, leaves: Indices) -> Floats64:
        """What these leaves hold."""
        return np.asarray(self._nodes[self._first + leaves])

    def put(self, leaves: Indices, values: Floats64) -> None:
        """Set leaves [n]; of a leaf named twice the last value counts. O(n log capacity)."""
        node = leaves + self._first
        self._nodes[node] = values
        for _ in range(self._depth):
            node = node >> 1  # duplicates compute the same sum twice, which costs less than finding them
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, mass: Floats64) -> Indices:
        """For each mass in [0, total) the leaf whose interval of the running sum contains it."""
        node, left = np.ones(len(mass), dtype=np.int64), mass.copy()
        for _ in range(self._depth):
            node = 2 * node
            lower = self._nodes[node]
            right = (left >= lower) & (self._nodes[node + 1] > 0)  # rounding never leads to an empty branch
            left -= lower * right
            node += right
        return node - self._first

    def leaves(self) -> Floats64:
        """All leaves [capacity]. A copy."""
        return self._nodes[self._first : self._first + self.capacity].copy()

    def fill(self, leaves: Floats64) -> None:
        """Replace all leaves; raises ValueError when there are not `capacity` of them, all finite and not negative."""
        if leaves.shape != (self.capacity,) or not (np.isfinite(leaves) & (leaves >= 0)).all():
            raise ValueError(f"priorities of shape {leaves.shape} do not fit {self.capacity} transitions")
        self._nodes[self._first : self._first + self.capacity] = leaves
        for level in range(self._depth - 1, -1, -1):
            node = np.arange(1 << level, 2 << level)
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]


class Priorities:
    """Priorities of all ranks' transitions, equal on every rank: leaf = slot * environments + environment."""

    def __init__(self, environments: int, length: int, exponent: float) -> None:
        """`length` slots of each environment, none of them filled; `exponent` is the paper's alpha."""
        self._environments, self._exponent = environments, exponent
        self.tree = SumTree(environments * length)
        self.largest = 1.0  # with the exponent applied

    def added(self, slot: int) -> None:
        """All environments stored a transition in this slot."""
        leaves = slot * self._environments + np.arange(self._environments)
        self.tree.put(leaves, np.full(self._environments, self.largest))

    def sample(self, draws: Floats64) -> Indices:
        """Leaves for uniform draws [n] in (0, 1), one from each of n equal parts of the total."""
        count = len(draws)
        return self.tree.find((np.arange(count) + draws) * (self.tree.total / count))

    def weights(self, leaves: Indices, filled: int, beta: float) -> NDArray[np.float32]:
        """Importance weights [n] in (0, 1]; `filled` transitions are stored."""
        chance = self.tree.values(leaves) / self.tree.total
        weights = (filled * chance) ** -beta
        return np.asarray(weights / weights.max(), dtype=np.float32)

    def learned(self, leaves: Indices, errors: NDArray[np.float32]) -> None:
        """Take the newest temporal-difference errors as priorities."""
        values = (np.abs(errors.astype(np.float64)) + EPSILON) ** self._exponent
        self.largest = max(self.largest, float(values.max()))
        self.tree.put(leaves, values)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Leaves and the largest priority. Copies."""
        return {"priorities": self.tree.leaves(), "priorities.largest": np.asarray([self.largest])}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take up a saved state; raises KeyError or ValueError when it does not fit."""
        self.tree.fill(np.asarray(state["priorities"], dtype=np.float64))
        self.largest = float(state["priorities.largest"][0])
