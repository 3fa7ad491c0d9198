"""Navigation in two dimensions: drive to a goal among round obstacles.

The action is the velocity wanted, each part in [-1, 1] m/s; a step is half a second, and velocity changes by at most
the `acceleration` of the specification (0.5 m/s within a step). Rewards: goal 10, collision -0.5, time -0.01, and -0.01
|change of velocity|^2 for smoothness. The potential for reward shaping is minus the distance to the goal. Seen: goal
relative to oneself, velocity, distance to the four walls, and the five nearest obstacles (relative place and gap),
nearest first; all lengths in metres.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Floats64, Level, Outcome, Simulation, box

MOST, SEEN, RADIUS, GOAL, SECONDS = 12, 5, 0.35, 0.4, 0.5
FAR = 100.0  # where obstacles are that a level does not have
NEAREST = slice(8, 8 + 3 * SEEN)  # of the observation: (dx, dy, gap) of each obstacle seen


class Navigation(Simulation):
    """n vehicles, each in an arena of its own."""

    observations = 2 + 2 + 4 + 3 * SEEN
    actions = 2
    bounds = box(-1.0, 1.0, 2)
    PARAMETERS: ClassVar[Mapping[str, float]] = {
        "size": 5,
        "obstacles": 3,
        "max_steps": 300,
        "acceleration": 0.5,
        "gain": 1.0,  # velocity reached for the velocity wanted
        "drift": 0.0,  # standard deviation of a push per step, m
    }
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("beginner", 0.7),
        Level("intermediate", 0.6, {"size": 8, "obstacles": 5, "max_steps": 250}),
        Level("advanced", 0.5, {"size": 10, "obstacles": 8, "max_steps": 200}),
        Level("expert", 0.4, {"size": 15, "obstacles": 12, "max_steps": 180}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        body = {name: np.zeros((count, 2)) for name in ("place", "velocity", "goal")}
        return body | {"obstacle": np.zeros((count, MOST, 2))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        """Start on the left, goal on the right, obstacles between them but never on top of either."""
        size = self.parameter["size"][which, None]
        draws = self._draws(seeds, 4 + 2 * MOST)
        place = draws[:, :2] * [0.2, 0.8] * size + [0.05, 0.1] * size
        goal = draws[:, 2:4] * [0.2, 0.8] * size + [0.75, 0.1] * size
        obstacle = draws[:, 4:].reshape(-1, MOST, 2) * size[:, None]
        for taken in (place, goal):
            away = obstacle - taken[:, None]
            distance = np.linalg.norm(away, axis=2, keepdims=True)
            obstacle = np.where(distance < 3 * RADIUS, taken[:, None] + away / distance * 3 * RADIUS, obstacle)
        unused = np.arange(MOST) >= self.parameter["obstacles"][which, None]
        self.body["place"][which], self.body["goal"][which], self.body["velocity"][which] = place, goal, 0.0
        self.body["obstacle"][which] = np.where(unused[..., None], FAR, obstacle)

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, limit = self.body, self.parameter["acceleration"][:, None]
        wanted = actions * self.parameter["gain"][:, None]
        change = np.clip(wanted - body["velocity"], -limit, limit)
        body["velocity"] = np.clip(body["velocity"] + change, -1.0, 1.0)
        push = self._normals(2) * self.parameter["drift"][:, None]
        target = body["place"] + SECONDS * body["velocity"] + push
        size = self.parameter["size"][:, None]
        outside = ((target < 0) | (target > size)).any(axis=1)
        hit = (np.linalg.norm(body["obstacle"] - target[:, None], axis=2) < RADIUS).any(axis=1)
        collided = outside | hit
        body["place"] = np.where(collided[:, None], body["place"], target)
        body["velocity"][collided] = 0.0
        arrived = np.linalg.norm(body["goal"] - body["place"], axis=1) < GOAL
        reward = -0.01 - 0.5 * collided + 10.0 * arrived - 0.01 * (change * change).sum(axis=1)
        return Outcome(reward, arrived, arrived)

    def _observe(self) -> Observations:
        body, size = self.body, self.parameter["size"][:, None]
        away = body["obstacle"] - body["place"][:, None]
        gap = np.linalg.norm(away, axis=2) - RADIUS
        nearest = gap.argsort(axis=1, kind="stable")[:, :SEEN]
        seen = np.concatenate((away, gap[..., None]), axis=2)
        seen = np.clip(np.take_along_axis(seen, nearest[..., None], axis=1), -10.0, 10.0)
        parts = [body["goal"] - body["place"], body["velocity"], body["place"], size - body["place"]]
        return np.concatenate([*parts, seen.reshape(len(seen), -1)], axis=1).astype(np.float32)

    @staticmethod
    def potential(observation: Observations) -> Floats64:
        """Minus the distance to the goal in metres [n]."""
        return np.asarray(-np.linalg.norm(observation[:, :2].astype(np.float64), axis=1))
