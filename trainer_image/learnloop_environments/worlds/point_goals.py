"""Point goals: find a place nobody tells; tasks for meta-learning.

The two-dimensional navigation of Finn, Abbeel & Levine (2017), arXiv 1703.03400, section 5.3: a point starts at the
origin, moves by at most 0.1 in each direction a step, and earns minus the distance to a goal it does not see. The goal
is a parameter (goal_x, goal_y): randomise it and every task is another one; only the rewards tell which. Seen: the
place. Deviation: a step earns minus the distance, an episode has 20 steps.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Outcome, Simulation, box

SPEED, NEAR = 0.1, 0.2


class PointGoals(Simulation):
    """n points with a goal each."""

    observations = 2
    actions = 2
    bounds = box(-1.0, 1.0, 2)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"goal_x": 0.5, "goal_y": 0.5, "max_steps": 20}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"place": np.zeros((count, 2))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["place"][which] = 0.0

    def _distance(self) -> NDArray[np.float64]:
        goal = np.stack((self.parameter["goal_x"], self.parameter["goal_y"]), axis=1)
        return np.asarray(np.linalg.norm(self.body["place"] - goal, axis=1))

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        self.body["place"] = self.body["place"] + SPEED * actions
        nobody = np.zeros(len(actions), dtype=np.bool_)
        return Outcome(-self._distance(), nobody, nobody)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self._distance() < NEAR)

    def _observe(self) -> Observations:
        return self.body["place"].astype(np.float32)
