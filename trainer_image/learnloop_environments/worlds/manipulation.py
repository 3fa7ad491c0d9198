"""Manipulation: an arm with seven joints reaches for a point with its hand.

The action is the velocity wanted of each joint, in [-1, 1] rad/s; a step is 0.1 s, joints stop at their limits and
change velocity by at most `acceleration` within a step. Axes alternate between the link's own direction and a bend, so
the hand reaches points in all directions. Seen: joint angles (as share of their limits), joint velocities, the hand,
and the target relative to it (metres). Rewards: -0.1 distance, -0.001 |change of velocity|^2, reached 10.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Floats64, Level, Outcome, Simulation, box

JOINTS, SECONDS = 7, 0.1
LENGTHS = np.asarray([0.3, 0.3, 0.25, 0.25, 0.15, 0.15, 0.1])  # m
LIMITS = np.asarray([2.8, 1.8, 2.8, 1.8, 2.8, 1.8, 2.8])  # rad


def hand(angles: Floats64) -> Floats64:
    """Where the hand is [n, 3] for joint angles [n, 7]; even joints turn about z, odd ones about y."""
    turn = np.broadcast_to(np.eye(3), (len(angles), 3, 3))
    place = np.zeros((len(angles), 3))
    for joint, length in enumerate(LENGTHS):
        sine, cosine = np.sin(angles[:, joint]), np.cos(angles[:, joint])
        local = np.zeros((len(angles), 3, 3))
        first, second = (0, 1) if joint % 2 == 0 else (2, 0)  # the plane that turns
        local[:, first, first] = local[:, second, second] = cosine
        local[:, first, second], local[:, second, first] = -sine, sine
        still = 3 - first - second
        local[:, still, still] = 1.0
        turn = turn @ local
        place = place + turn[:, :, 2] * length
    return place


class Manipulation(Simulation):
    """n arms."""

    observations = 2 * JOINTS + 6
    actions = JOINTS
    bounds = box(-1.0, 1.0, JOINTS)
    PARAMETERS: ClassVar[Mapping[str, float]] = {
        "spread": 0.5,  # share of the joints' range that targets are drawn from
        "tolerance": 0.15,  # m
        "max_steps": 150,
        "acceleration": 1.0,
        "gain": 1.0,
    }
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("beginner", 0.7),
        Level("intermediate", 0.6, {"spread": 0.7, "tolerance": 0.12, "max_steps": 125}),
        Level("advanced", 0.5, {"spread": 0.85, "tolerance": 0.1, "max_steps": 100}),
        Level("expert", 0.4, {"spread": 1.0, "tolerance": 0.08, "max_steps": 90}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        body = {name: np.zeros((count, JOINTS)) for name in ("angle", "velocity")}
        return body | {"target": np.zeros((count, 3))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        """Targets are where the hand would be in some pose: always within reach."""
        draws = 2.0 * self._draws(seeds, 2 * JOINTS) - 1.0
        spread = self.parameter["spread"][which, None]
        self.body["angle"][which] = 0.2 * LIMITS * draws[:, :JOINTS]
        self.body["velocity"][which] = 0.0
        self.body["target"][which] = hand(spread * LIMITS * draws[:, JOINTS:])

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, limit = self.body, self.parameter["acceleration"][:, None]
        change = np.clip(actions * self.parameter["gain"][:, None] - body["velocity"], -limit, limit)
        body["velocity"] = np.clip(body["velocity"] + change, -1.0, 1.0)
        angle = body["angle"] + SECONDS * body["velocity"]
        body["velocity"][np.abs(angle) > LIMITS] = 0.0
        body["angle"] = np.clip(angle, -LIMITS, LIMITS)
        distance = np.linalg.norm(body["target"] - hand(body["angle"]), axis=1)
        reached = distance < self.parameter["tolerance"]
        reward = 10.0 * reached - 0.1 * distance - 0.001 * (change * change).sum(axis=1)
        return Outcome(reward, reached, reached)

    def _observe(self) -> Observations:
        place = hand(self.body["angle"])
        parts = [self.body["angle"] / LIMITS, self.body["velocity"], place, self.body["target"] - place]
        return np.concatenate(parts, axis=1).astype(np.float32)

    @staticmethod
    def potential(observation: Observations) -> Floats64:
        """Minus the distance to the target in metres [n]."""
        return np.asarray(-np.linalg.norm(observation[:, -3:].astype(np.float64), axis=1))
