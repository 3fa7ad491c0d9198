"""The two-step game of Rashid et al. (2018), arXiv 1803.11485, section 5 and table 1.

The first agent's first action chooses the second step's game: A pays 7 whatever is done; B pays [[0, 1], [1, 8]].
Learners that take their mates for part of the world settle on 7; who represents the joint value finds 8. Seen by both:
which of the three states it is, and which agent one is.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Outcome, TeamSimulation

PAYOFF = np.asarray([[[0.0, 0.0], [0.0, 0.0]], [[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])  # start, A, B


class TwoStep(TeamSimulation):
    """n games of two agents."""

    agents = 2
    observations = len(PAYOFF) + 2
    actions = 2
    PARAMETERS: ClassVar[Mapping[str, float]] = {"max_steps": 2}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"game": np.zeros(count, dtype=np.int64)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["game"][which] = 0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        game = self.body["game"]
        reward = PAYOFF[game, actions[:, 0], actions[:, 1]]
        self.body["game"] = np.where(game == 0, 1 + actions[:, 0], game)
        both = np.repeat(reward[:, None], self.agents, axis=1)
        return Outcome(both, game > 0, reward == PAYOFF.max())

    def _observe(self) -> Observations:
        count = len(self.members)
        seen = np.eye(len(PAYOFF), dtype=np.float32)[self.body["game"]]
        shared = np.broadcast_to(seen[:, None], (count, self.agents, len(PAYOFF)))
        return np.concatenate((shared, self._names(count)), axis=2)
