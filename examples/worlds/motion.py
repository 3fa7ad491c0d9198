"""Worlds of motion: navigation, an arm, a courier, and points with hidden goals."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Floats64, Level, Outcome, Simulation, box
from learnloop_environments.spaces import Bounds, Observations

MOST, OBSERVED, RADIUS, GOAL, SECONDS = 12, 5, 0.35, 0.4, 0.5
FAR = 100.0  # where obstacles are that a level does not have
NEAREST = slice(8, 8 + 3 * OBSERVED)  # of the observation: (dx, dy, gap) of each obstacle seen


class Navigation(Simulation):
    """Navigation in two dimensions: drive to a goal among round obstacles.

    The action is the velocity wanted, each part in [-1, 1] m/s; a step is half a second, and velocity changes by at
    most the `acceleration` of the specification (0.5 m/s within a step). Rewards: goal 10, collision -0.5, time -0.01,
    and -0.01 |change of velocity|^2 for smoothness. The potential for reward shaping is minus the distance to the goal.
    Seen: goal relative to oneself, velocity, distance to the four walls, and the five nearest obstacles (relative place
    and gap), nearest first; all lengths in metres.
    """

    observations = 2 + 2 + 4 + 3 * OBSERVED
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
        return Outcome(reward, arrived, arrived, {"collisions": collided})

    def _observe(self) -> Observations:
        body, size = self.body, self.parameter["size"][:, None]
        away = body["obstacle"] - body["place"][:, None]
        gap = np.linalg.norm(away, axis=2) - RADIUS
        nearest = gap.argsort(axis=1, kind="stable")[:, :OBSERVED]
        near = np.concatenate((away, gap[..., None]), axis=2)
        near = np.clip(np.take_along_axis(near, nearest[..., None], axis=1), -10.0, 10.0)
        parts = [body["goal"] - body["place"], body["velocity"], body["place"], size - body["place"]]
        return np.concatenate([*parts, near.reshape(len(near), -1)], axis=1).astype(np.float32)

    @staticmethod
    def potential(observation: Observations) -> Floats64:
        """Minus the distance to the goal in metres [n]."""
        return np.asarray(-np.linalg.norm(observation[:, :2].astype(np.float64), axis=1))


JOINTS, JOINT_SECONDS = 7, 0.1
LENGTHS = np.asarray([0.3, 0.3, 0.25, 0.25, 0.15, 0.15, 0.1])  # m
JOINT_LIMITS = np.asarray([2.8, 1.8, 2.8, 1.8, 2.8, 1.8, 2.8])  # rad


def hand(angles: Floats64) -> Floats64:
    """The place of the hand [n, 3] for joint angles [n, 7]; even joints turn about z, odd ones about y."""
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
    """Manipulation: an arm with seven joints reaches for a point with its hand.

    The action is the velocity wanted of each joint, in [-1, 1] rad/s; a step is 0.1 s, joints stop at their limits and
    change velocity by at most `acceleration` within a step. Axes alternate between the link's own direction and a bend,
    so the hand reaches points in all directions. Seen: joint angles (as share of their limits), joint velocities, the
    hand, and the target relative to it (metres). Rewards: -0.1 distance, -0.001 |change of velocity|^2, reached 10.
    """

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
        self.body["angle"][which] = 0.2 * JOINT_LIMITS * draws[:, :JOINTS]
        self.body["velocity"][which] = 0.0
        self.body["target"][which] = hand(spread * JOINT_LIMITS * draws[:, JOINTS:])

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, limit = self.body, self.parameter["acceleration"][:, None]
        change = np.clip(actions * self.parameter["gain"][:, None] - body["velocity"], -limit, limit)
        body["velocity"] = np.clip(body["velocity"] + change, -1.0, 1.0)
        angle = body["angle"] + JOINT_SECONDS * body["velocity"]
        body["velocity"][np.abs(angle) > JOINT_LIMITS] = 0.0
        body["angle"] = np.clip(angle, -JOINT_LIMITS, JOINT_LIMITS)
        distance = np.linalg.norm(body["target"] - hand(body["angle"]), axis=1)
        reached = distance < self.parameter["tolerance"]
        reward = 10.0 * reached - 0.1 * distance - 0.001 * (change * change).sum(axis=1)
        return Outcome(reward, reached, reached)

    def _observe(self) -> Observations:
        place = hand(self.body["angle"])
        parts = [self.body["angle"] / JOINT_LIMITS, self.body["velocity"], place, self.body["target"] - place]
        return np.concatenate(parts, axis=1).astype(np.float32)

    @staticmethod
    def potential(observation: Observations) -> Floats64:
        """Minus the distance to the target in metres [n]."""
        return np.asarray(-np.linalg.norm(observation[:, -3:].astype(np.float64), axis=1))


TURN, DRIVE, HAND_OVER = range(3)
STRIDE, WITHIN = 0.2, 0.2


class Courier(Simulation):
    """Courier: turn, drive, and hand over at the right place: each time a choice and how much of it.

    A courier on a square of side 2 with a heading. There are three choices, each with one number from -1 to 1. Turning
    is by up to 90 degrees either way, driving by up to 0.2 ahead. Handing over pays 1 within 0.2 of the addressee,
    loses 1 elsewhere, and ends the episode. Driving pays the distance gained. Seen: place, way to the addressee,
    heading and the addressee's direction relative to it as sine and cosine, share of time gone. The hybrid action space
    of parameterised-action tasks (Masson, Ranchod & Konidaris, 2016, arXiv 1509.01644).
    """

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


SPEED, NEAR = 0.1, 0.2


class PointGoals(Simulation):
    """Point goals: find a hidden place; tasks for meta-learning.

    The two-dimensional navigation of Finn, Abbeel & Levine (2017), arXiv 1703.03400, section 5.3: a point starts at the
    origin, moves by at most 0.1 in each direction a step, and earns minus the distance to a goal it does not see. The
    goal is a parameter (goal_x, goal_y): randomise it and every task is another one; only the rewards tell which. Seen:
    the place. Deviation: a step earns minus the distance, an episode has 20 steps.
    """

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
        return Outcome.going_on(-self._distance())

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self._distance() < NEAR)

    def _observe(self) -> Observations:
        return self.body["place"].astype(np.float32)
