"""Courier: turn, drive, and hand over at the right place: each time a choice and how much of it.

A courier on a square of side 2 with a heading. Three choices, each with one number from -1 to 1: turn (by up to 90
degrees either way), drive (up to 0.2 ahead; nobody reverses), hand over (pays 1 within 0.2 of the addressee and loses
1 elsewhere, and ends the episode). Driving pays the distance gained. Seen: place, way to the addressee, heading and
the addressee's direction relative to it as sine and cosine, share of time gone. The hybrid action space of
parameterised-action tasks (Masson, Ranchod & Konidaris, 2016, arXiv 1509.01644).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Level, Outcome, Simulation

TURN, DRIVE, HAND_OVER = range(3)
STRIDE, WITHIN = 0.2, 0.2


class Courier(Simulation):
    """n couriers."""

    observations = 9
    actions = 2  # the choice and its number
    bounds = Bounds(np.asarray([0, -1], dtype=np.float32), np.asarray([2, 1], dtype=np.float32), choices=3)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"slip": 0.0, "max_steps": 40}  # slip: deviation of a stride's length
    LEVELS: ClassVar[tuple[Level, ...]] = (Level("dry", 0.8), Level("wet", 0.8, {"slip": 0.3}))

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {"place": np.zeros((count, 2)), "goal": np.zeros((count, 2)), "heading": np.zeros(count)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        draws = self._draws(seeds, 5)
        self.body["place"][which], self.body["goal"][which] = 2 * draws[:, :2] - 1, 2 * draws[:, 2:4] - 1
        self.body["heading"][which] = 2 * np.pi * draws[:, 4]

    def _distance(self) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(self.body["goal"] - self.body["place"], axis=1))

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        choice, amount = np.rint(actions[:, 0]), actions[:, 1]
        before, body = self._distance(), self.body
        body["heading"] = body["heading"] + np.where(choice == TURN, amount * np.pi / 2, 0.0)
        ahead = np.stack((np.cos(body["heading"]), np.sin(body["heading"])), axis=1)
        stride = STRIDE * np.maximum(amount, 0.0) * (1.0 + self.parameter["slip"] * self._normals(1)[:, 0])
        body["place"] = np.clip(body["place"] + np.where(choice == DRIVE, stride, 0.0)[:, None] * ahead, -1.0, 1.0)
        over = choice == HAND_OVER
        right = over & (before <= WITHIN)
        reward = before - self._distance() + np.where(over, np.where(right, 1.0, -1.0), 0.0)
        return Outcome(reward, over, right)

    def _observe(self) -> Observations:
        body, away = self.body, self.body["goal"] - self.body["place"]
        relative = np.arctan2(away[:, 1], away[:, 0]) - body["heading"]
        angles = [np.sin(body["heading"]), np.cos(body["heading"]), np.sin(relative), np.cos(relative)]
        late = self.age / self.parameter["max_steps"]
        return np.concatenate((body["place"], away, np.stack([*angles, late], axis=1)), axis=1).astype(np.float32)
