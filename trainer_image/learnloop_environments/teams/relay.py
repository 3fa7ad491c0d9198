"""Relay: one agent knows the goal, the other one can act on it, and only a signal connects them.

The smallest continuous form of "cooperative communication" (Lowe et al., 2017, arXiv 1706.02275, section 5.1). Each
episode draws a goal in [-1, 1]. The first agent sees it and does nothing but signal a number; one step later the second
agent sees the number and answers with one of its own. Both earn minus the squared distance of answer and goal in every
step but the first, when nothing has been said yet. A signal's worth depends on what the listener makes of it: a critic
that sees both can tell, one that sees the speaker alone sees a moving target. Seen: goal (the speaker), signal (the
listener), whether it is the first step, and which agent one is.

`RelayHybrid`: a goal is a kind, one of three, and an amount, and so is an answer; one of the wrong kind is as far off
as 1. Both agents see the kind, as a one-hot vector; only the speaker sees the amount, and its signal's number tells it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Outcome, TeamSimulation, box

NEAR = 0.2  # mean distance of answer and goal in a successful episode


class Relay(TeamSimulation):
    """n pairs of speaker and listener."""

    agents = 2
    observations = 3 + 2
    actions = 1
    bounds = box(-1.0, 1.0, 1)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"max_steps": 4}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {name: np.zeros(count) for name in ("goal", "signal", "distance")}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["goal"][which] = 2.0 * self._draws(seeds, 1)[:, 0] - 1.0
        self.body["signal"][which] = self.body["distance"][which] = 0.0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        distance = np.where(self.age > 0, np.abs(actions[:, 1, 0] - self.body["goal"]), 0.0)
        self.body["distance"] = self.body["distance"] + distance
        self.body["signal"] = actions[:, 0, 0].copy()
        nobody = np.zeros(len(distance), dtype=np.bool_)
        return Outcome(np.repeat(-np.square(distance)[:, None], self.agents, axis=1), nobody, nobody)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["distance"] <= NEAR * (self.parameter["max_steps"] - 1))

    def _observe(self) -> Observations:
        count = len(self.members)
        seen = np.zeros((count, self.agents, 3), dtype=np.float32)
        seen[:, 0, 0], seen[:, 1, 1] = self.body["goal"], self.body["signal"]
        seen[:, :, 2] = (self.age == 0)[:, None]
        return np.concatenate((seen, self._names(count)), axis=2)


KINDS = 3


class RelayHybrid(TeamSimulation):
    """n pairs that both know what is wanted; only the speaker knows how much of it."""

    agents = 2
    observations = KINDS + 2 + 1 + 2
    actions = 2
    bounds = Bounds(np.asarray([0, -1], np.float32), np.asarray([KINDS - 1, 1], np.float32), choices=KINDS)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"max_steps": 4}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"goal": np.zeros((count, 2)), "signal": np.zeros(count), "distance": np.zeros(count)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        draws = self._draws(seeds, 2)
        self.body["goal"][which] = np.stack((np.floor(KINDS * draws[:, 0]), 2.0 * draws[:, 1] - 1.0), axis=1)
        self.body["signal"][which] = self.body["distance"][which] = 0.0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        goal, answer = self.body["goal"], actions[:, 1]
        amiss = np.where(np.rint(answer[:, 0]) == goal[:, 0], np.abs(answer[:, 1] - goal[:, 1]), 1.0)
        distance = np.where(self.age > 0, amiss, 0.0)
        self.body["distance"] = self.body["distance"] + distance
        self.body["signal"] = actions[:, 0, 1].copy()
        nobody = np.zeros(len(distance), dtype=np.bool_)
        return Outcome(np.repeat(-np.square(distance)[:, None], self.agents, axis=1), nobody, nobody)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["distance"] <= NEAR * (self.parameter["max_steps"] - 1))

    def _observe(self) -> Observations:
        kind = np.eye(KINDS)[np.rint(self.body["goal"][:, 0]).astype(np.int64)]
        seen = np.zeros((len(self.members), self.agents, KINDS + 3), dtype=np.float32)
        seen[:, :, :KINDS] = kind[:, None]
        seen[:, 0, KINDS], seen[:, 1, KINDS + 1] = self.body["goal"][:, 1], self.body["signal"]
        seen[:, :, -1] = (self.age == 0)[:, None]
        return np.concatenate((seen, self._names(len(self.members))), axis=2)
