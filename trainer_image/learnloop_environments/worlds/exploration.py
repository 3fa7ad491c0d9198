"""Exploration: see as much of an unknown grid as the time allows, and find what lies in it.

A square room with obstacles and three resources. Seen are the 5 x 5 cells around (blocked, visited, resource), the
place, the share already explored, the time left, and which of the four moves are free: the mask of the actions. Rewards
are the specification's: discovery 0.5, resource 1, time -0.01, collision -0.5, completion 10. Its constant base reward
is left out, because it pays for staying. The levels' rooms, obstacles and time limits are the specification's.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Level, Outcome, Simulation

LARGEST, SIGHT, RESOURCES = 15, 2, 3
WIDTH = LARGEST + 2 * SIGHT  # a border that cannot be entered, so that every window lies inside
MOVES = np.asarray([[-1, 0], [0, 1], [1, 0], [0, -1]])  # north, east, south, west
WINDOW = np.arange(-SIGHT, SIGHT + 1)
DISCOVERY, RESOURCE, TIME, COLLISION, COMPLETION = 0.5, 1.0, -0.01, -0.5, 10.0


class Exploration(Simulation):
    """n explorers, each in a room of its own."""

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
        new, found = ~body["visited"][cell], body["resource"][cell].copy()
        body["visited"][cell], body["resource"][cell] = True, False
        complete = self._coverage() >= self.parameter["coverage"]
        reward = TIME + DISCOVERY * new + RESOURCE * found + COLLISION * collided + COMPLETION * complete
        return Outcome(reward, complete, complete)

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
