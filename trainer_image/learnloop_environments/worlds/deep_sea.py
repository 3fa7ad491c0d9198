"""Deep sea: one way among 2^depth leads to the treasure, and every step on it costs a little.

The exploration problem of Osband et al. (2019), arXiv 1908.03568 (bsuite): a diver sinks one row at each step, to the
left or to the right; a step to the right costs 0.01 / depth, and the treasure in the far right corner pays 1. Which of
the two actions means right differs from cell to cell, so that a net's bias does not find the way. The best return is
0.99. Seen: the cell as a one-hot vector; under the last row, nothing.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Purpose, Words, words
from learnloop_environments.simulation import Outcome, Simulation

DEPTH = 14
COST = 0.01 / DEPTH
RIGHT = (words(Purpose.DYNAMICS, np.arange(DEPTH)[:, None], np.arange(DEPTH)) & np.uint64(1)).astype(np.int64)


class DeepSea(Simulation):
    """n dives."""

    observations = DEPTH * DEPTH
    actions = 2
    PARAMETERS: ClassVar[Mapping[str, float]] = {"max_steps": DEPTH}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"row": np.zeros(count, dtype=np.int64), "column": np.zeros(count, dtype=np.int64)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["row"][which] = self.body["column"][which] = 0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        row, column = self.body["row"], self.body["column"]
        right = actions == RIGHT[row, column]
        found = right & (row == DEPTH - 1) & (column == DEPTH - 1)
        self.body["column"] = np.clip(column + np.where(right, 1, -1), 0, DEPTH - 1)
        self.body["row"] = np.minimum(row + 1, DEPTH)
        bottom = self.body["row"] == DEPTH
        return Outcome(found - COST * right, bottom, found)

    def _observe(self) -> Observations:
        seen = np.zeros((len(self.members), DEPTH, DEPTH), dtype=np.float32)
        afloat = np.flatnonzero(self.body["row"] < DEPTH)
        seen[afloat, self.body["row"][afloat], self.body["column"][afloat]] = 1.0
        return seen.reshape(len(self.members), -1)
