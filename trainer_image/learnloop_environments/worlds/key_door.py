"""Key and door: fetch the key, then open the door; nothing else is paid.

A square room of 10 x 10 cells, the start in the middle, the key in one corner and the door in the opposite one, 50
moves. The door pays 1, and only with the key: too far for a walk at random, and easy in two parts. The landmarks of a
hierarchical learner are the key's place and the door's. Seen: row and column as one-hot vectors, and whether one has
the key.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Outcome, Simulation

SIZE = 10
MOVES = np.asarray([[-1, 0], [0, 1], [1, 0], [0, -1]])  # north, east, south, west
KEY, DOOR, MIDDLE = (0, 0), (SIZE - 1, SIZE - 1), (SIZE // 2, SIZE // 2)
LANDMARKS = np.asarray([KEY, DOOR])


class KeyDoor(Simulation):
    """n rooms."""

    observations = 2 * SIZE + 1
    actions = len(MOVES)
    landmarks = len(LANDMARKS)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"slip": 0.1, "max_steps": 50}  # share of moves that go astray

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"place": np.zeros((count, 2), dtype=np.int64), "key": np.zeros(count, dtype=np.bool_)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["place"][which], self.body["key"][which] = MIDDLE, False

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        chance = self._chance(2)
        astray = chance[:, 0] < self.parameter["slip"]
        move = np.where(astray, (chance[:, 1] * len(MOVES)).astype(np.int64), actions)
        self.body["place"] = np.clip(self.body["place"] + MOVES[move], 0, SIZE - 1)
        self.body["key"] = self.body["key"] | (self.body["place"] == KEY).all(axis=1)
        opened = self.body["key"] & (self.body["place"] == DOOR).all(axis=1)
        return Outcome(opened.astype(np.float64), opened, opened)

    def _observe(self) -> Observations:
        rows, columns = (np.eye(SIZE, dtype=np.float32)[self.body["place"][:, axis]] for axis in (0, 1))
        return np.concatenate((rows, columns, self.body["key"][:, None].astype(np.float32)), axis=1)

    @staticmethod
    def reached(observation: Observations) -> NDArray[np.int64]:
        """The landmark at each place [n], -1 where there is none."""
        place = np.stack((observation[:, :SIZE].argmax(axis=1), observation[:, SIZE:-1].argmax(axis=1)), axis=1)
        at = (place[:, None] == LANDMARKS).all(axis=2)
        return np.where(at.any(axis=1), at.argmax(axis=1), -1)
