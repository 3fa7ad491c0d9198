"""Worlds of cells: exploration of a room, a key and its door, the deep sea."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.randomness import Purpose, Words, words
from learnloop_environments.simulation import Flags, Level, Outcome, Simulation
from learnloop_environments.spaces import Observations

LARGEST, SIGHT, RESOURCES = 15, 2, 3
WIDTH = LARGEST + 2 * SIGHT  # a border that cannot be entered, so that every window lies inside
MOVES = np.asarray([[-1, 0], [0, 1], [1, 0], [0, -1]])  # north, east, south, west
WINDOW = np.arange(-SIGHT, SIGHT + 1)
DISCOVERY, RESOURCE, TIME, COLLISION, COMPLETION = 0.5, 1.0, -0.01, -0.5, 10.0


class Exploration(Simulation):
    """Exploration: see as much of an unknown grid as the time allows, and find what lies in it.

    A square room with obstacles and three resources. Seen are the 5 x 5 cells around (blocked, visited, resource), the
    place, the share already explored, the time left, and which of the four moves are free: the mask of the actions.
    Rewards are the specification's: discovery 0.5, resource 1, time -0.01, collision -0.5, completion 10. Its constant
    base reward is left out, because it pays for staying. The levels' rooms, obstacles and time limits are the
    specification's.
    """

    observations = 3 * len(WINDOW) ** 2 + 4 + len(MOVES)
    actions = len(MOVES)
    masked = True  # the last `actions` observations say which moves are free
    PARAMETERS: ClassVar[Mapping[str, float]] = {"size": 5, "obstacles": 3, "coverage": 0.8, "max_steps": 300}
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("beginner", 0.7),
        Level("intermediate", 0.6, {"size": 8, "obstacles": 5, "coverage": 0.7, "max_steps": 250}),
        Level("advanced", 0.5, {"size": 10, "obstacles": 8, "coverage": 0.6, "max_steps": 200}),
        Level("expert", 0.4, {"size": 15, "obstacles": 12, "coverage": 0.5, "max_steps": 180}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        grid = (count, WIDTH, WIDTH)
        body: dict[str, NDArray[Any]] = {name: np.zeros(grid, np.bool_) for name in ("blocked", "visited", "resource")}
        return body | {"place": np.zeros((count, 2), dtype=np.int64)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        """The cells in a random order: first the start, then obstacles, then resources."""
        cells = np.arange(LARGEST**2)
        rows, columns = np.divmod(cells, LARGEST)
        size = self.parameter["size"][which, None]
        inside = (rows < size) & (columns < size)
        rank = np.where(inside, self._draws(seeds, len(cells)), 2.0).argsort(axis=1).argsort(axis=1)
        last = 1 + self.parameter["obstacles"][which, None]
        square = (len(which), LARGEST, LARGEST)
        room = slice(SIGHT, SIGHT + LARGEST)
        obstacle = (rank >= 1) & (rank < last) | ~inside
        self.body["blocked"][which] = True
        self.body["visited"][which] = self.body["resource"][which] = False
        for name, cell in (("blocked", obstacle), ("resource", (rank >= last) & (rank < last + RESOURCES))):
            grid = self.body[name][which]
            grid[:, room, room] = cell.reshape(square)
            self.body[name][which] = grid
        start = (rank == 0).argmax(axis=1)
        self.body["place"][which] = np.stack(np.divmod(start, LARGEST), axis=1) + SIGHT
        place = self.body["place"][which]
        self.body["visited"][which, place[:, 0], place[:, 1]] = True

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, everyone = self.body, np.arange(len(self.members))
        wanted = body["place"] + MOVES[actions]
        collided = body["blocked"][everyone, wanted[:, 0], wanted[:, 1]]
        body["place"] = np.where(collided[:, None], body["place"], wanted)
        cell = (everyone, *body["place"].T)
        new, resource = ~body["visited"][cell], body["resource"][cell].copy()
        body["visited"][cell], body["resource"][cell] = True, False
        complete = self._coverage() >= self.parameter["coverage"]
        reward = TIME + DISCOVERY * new + RESOURCE * resource + COLLISION * collided + COMPLETION * complete
        counts = {"collisions": collided, "discoveries": new, "resources": resource, "coverage": self._coverage()}
        return Outcome(reward, complete, complete, counts)

    def _coverage(self) -> NDArray[np.float64]:
        free = self.parameter["size"] ** 2 - self.parameter["obstacles"]
        return np.asarray(self.body["visited"].sum(axis=(1, 2)) / free)

    def _free(self) -> Flags:
        around = self.body["place"][:, None, :] + MOVES
        blocked = self.body["blocked"][np.arange(len(around))[:, None], around[..., 0], around[..., 1]]
        return np.asarray(~blocked)

    def _observe(self) -> Observations:
        place, count = self.body["place"], len(self.members)
        rows = place[:, 0, None, None] + WINDOW[None, :, None]
        columns = place[:, 1, None, None] + WINDOW[None, None, :]
        cells = (np.arange(count)[:, None, None], rows, columns)
        windows = [self.body[name][cells].reshape(count, -1) for name in ("blocked", "visited", "resource")]
        facts = [
            (place - SIGHT) / self.parameter["size"][:, None],
            self._coverage()[:, None],
            1.0 - (self.age / self.parameter["max_steps"])[:, None],
            self._free(),
        ]
        return np.concatenate([*windows, *facts], axis=1).astype(np.float32)


SIZE = 10
KEY, DOOR, MIDDLE = (0, 0), (SIZE - 1, SIZE - 1), (SIZE // 2, SIZE // 2)
LANDMARKS = np.asarray([KEY, DOOR])


class KeyDoor(Simulation):
    """Key and door: fetch the key, then open the door; nothing else is paid.

    A square room of 10 x 10 cells, the start in the middle, the key in one corner and the door in the opposite one, 50
    moves. The door pays 1, and only with the key: too far for a walk at random, and easy in two parts. The landmarks of
    a hierarchical learner are the key's place and the door's. Seen: row and column as one-hot vectors, and whether one
    has the key.
    """

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


DEPTH = 14
COST = 0.01 / DEPTH
RIGHT = (words(Purpose.DYNAMICS, np.arange(DEPTH)[:, None], np.arange(DEPTH)) & np.uint64(1)).astype(np.int64)


class DeepSea(Simulation):
    """Deep sea: one way among 2^depth leads to the treasure, and every step on it costs a little.

    The exploration problem of Osband et al. (2019), arXiv 1908.03568 (bsuite): a diver sinks one row at each step, to
    the left or to the right; a step to the right costs 0.01 / depth, and the treasure in the far right corner pays 1.
    Which of the two actions means right differs from cell to cell, so that a net's bias does not find the way. The best
    return is 0.99. Seen: the cell as a one-hot vector; under the last row, nothing.
    """

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
        treasure = right & (row == DEPTH - 1) & (column == DEPTH - 1)
        self.body["column"] = np.clip(column + np.where(right, 1, -1), 0, DEPTH - 1)
        self.body["row"] = np.minimum(row + 1, DEPTH)
        bottom = self.body["row"] == DEPTH
        return Outcome(treasure - COST * right, bottom, treasure)

    def _observe(self) -> Observations:
        view = np.zeros((len(self.members), DEPTH, DEPTH), dtype=np.float32)
        afloat = np.flatnonzero(self.body["row"] < DEPTH)
        view[afloat, self.body["row"][afloat], self.body["column"][afloat]] = 1.0
        return view.reshape(len(self.members), -1)
