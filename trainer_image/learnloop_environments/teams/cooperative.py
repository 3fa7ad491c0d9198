"""Cooperation in two dimensions: three agents cover three places and speak while they do.

After "simple spread" (Lowe et al., 2017, arXiv 1706.02275, section 5.1), written anew and in arrays. The team's reward
is minus the mean over places of the distance to the nearest agent, minus 0.5 for each pair that collides. It gets 2
while every place is covered (the specification's cooperation bonus). Credit for it is `team` (all get it), `individual`
(minus the distance to the agent's own nearest place) or `difference`: the team's reward minus what it would have been
without the agent (Wolpert & Tumer, 2001), which all the others' luck cancels out of.

Controls: `Cooperative` moves by five discrete moves; `CooperativeContinuous` by a velocity and a signal, each in [-1,
1], that the others hear in the next step; `CooperativeHybrid` chooses to move, by two numbers, or to stand and signal a
third one. Seen by each: own place and velocity, the places, the others and their
signals, and which agent one is.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split, Words
from learnloop_environments.simulation import NOMINAL, Conditions, Floats64, Level, Outcome, TeamSimulation, box

AGENTS, SPEED, SIZE = 3, 0.25, 0.15
MOVES = np.asarray([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
COLLISION, COVERED = 0.5, 2.0
CREDITS = ("team", "individual", "difference")


class Cooperative(TeamSimulation):
    """n teams that move in discrete steps."""

    agents = AGENTS
    observations = 4 + 2 * AGENTS + 3 * (AGENTS - 1) + AGENTS
    actions = len(MOVES)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"near": 0.3, "room": 0.6, "max_steps": 25}
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("beginner", 0.7),
        Level("intermediate", 0.6, {"near": 0.25, "room": 0.8}),
        Level("advanced", 0.5, {"near": 0.2, "room": 1.0}),
        Level("expert", 0.4, {"near": 0.15, "room": 1.0}),
    )

    def __init__(self, split: Split, seed: int, members: range, conditions: Conditions = NOMINAL) -> None:
        """Teams `members` of the run with this seed; raises ConfigError for an unknown kind of credit."""
        if conditions.credit not in CREDITS:
            fix = f"choose one of {', '.join(CREDITS)}"
            raise ConfigError("spec.data.credit", conditions.credit, "is no way to give credit", fix)
        super().__init__(split, seed, members, conditions)

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        body = {name: np.zeros((count, AGENTS, 2)) for name in ("place", "velocity", "goal")}
        return body | {"signal": np.zeros((count, AGENTS)), "covered": np.zeros(count, dtype=np.bool_)}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        draws = (2.0 * self._draws(seeds, 4 * AGENTS) - 1.0) * self.parameter["room"][which, None]
        self.body["place"][which], self.body["goal"][which] = draws.reshape(-1, 2, AGENTS, 2).swapaxes(0, 1)
        self.body["velocity"][which] = self.body["signal"][which] = 0.0
        self.body["covered"][which] = False

    def _control(self, actions: NDArray[Any]) -> None:
        self.body["velocity"] = MOVES[actions]

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        self._control(actions)
        body = self.body
        body["place"] = np.clip(body["place"] + SPEED * body["velocity"], -1.0, 1.0)
        distance = np.linalg.norm(body["place"][:, :, None] - body["goal"][:, None], axis=3)  # [n, agents, places]
        body["covered"] = (distance.min(axis=1) < self.parameter["near"][:, None]).all(axis=1)
        nobody = np.zeros(len(distance), dtype=np.bool_)
        return Outcome(self._credit(distance), nobody, nobody)

    def _credit(self, distance: Floats64) -> Floats64:
        """Each agent's reward [n, agents]."""
        everyone = list(range(AGENTS))
        team = self._worth(distance, everyone)
        if self.conditions.credit == "team":
            return np.broadcast_to(team[:, None], (len(team), AGENTS))
        if self.conditions.credit == "individual":
            return np.asarray(-distance.min(axis=2))
        without = [self._worth(distance, [other for other in everyone if other != agent]) for agent in everyone]
        return team[:, None] - np.stack(without, axis=1)

    def _worth(self, distance: Floats64, present: list[int]) -> Floats64:
        """The team's reward [n] if only these agents were there."""
        near = distance[:, present].min(axis=1)
        worth = -near.mean(axis=1) + COVERED * (near < self.parameter["near"][:, None]).all(axis=1)
        place = self.body["place"]
        for one, other in combinations(present, 2):
            worth = worth - COLLISION * (np.linalg.norm(place[:, one] - place[:, other], axis=1) < SIZE)
        return np.asarray(worth)

    def _succeeded(self, truncated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(truncated & self.body["covered"])

    def optimal(self) -> Floats64:
        """Directions [n, agents, 2] along the shortest way to cover all places; the coordination bonus compares."""
        away = self.body["goal"][:, None] - self.body["place"][:, :, None]  # [n, agents, places, 2]
        distance = np.linalg.norm(away, axis=3)
        orders = np.asarray([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
        total = distance[:, np.arange(AGENTS), orders].sum(axis=2)
        chosen = orders[total.argmin(axis=1)]
        return np.take_along_axis(away, chosen[:, :, None, None], axis=2)[:, :, 0]

    def direction(self, actions: NDArray[Any]) -> Floats64:
        """What these actions mean as directions [n, agents, 2]."""
        return np.asarray(MOVES[actions])

    def _observe(self) -> Observations:
        body, count = self.body, len(self.members)
        places = (body["goal"][:, None] - body["place"][:, :, None]).reshape(count, AGENTS, -1)
        others = [[other for other in range(AGENTS) if other != agent] for agent in range(AGENTS)]
        away = body["place"][:, others] - body["place"][:, :, None]
        parts = [body["place"], body["velocity"], places, away.reshape(count, AGENTS, -1), body["signal"][:, others]]
        return np.concatenate([*parts, self._names(count)], axis=2).astype(np.float32)


class CooperativeContinuous(Cooperative):
    """n teams that choose velocities and signals."""

    actions = 3
    bounds = box(-1.0, 1.0, 3)

    def _control(self, actions: NDArray[Any]) -> None:
        self.body["velocity"], self.body["signal"] = actions[:, :, :2].copy(), actions[:, :, 2].copy()

    def direction(self, actions: NDArray[Any]) -> Floats64:
        """See Cooperative.direction: the signal has none."""
        return np.asarray(actions[:, :, :2])


MOVE, SPEAK = range(2)


class CooperativeHybrid(Cooperative):
    """n teams that choose between moving, with a velocity, and standing still with a signal."""

    actions = 4
    bounds = Bounds(np.asarray([0, -1, -1, -1], np.float32), np.asarray([1, 1, 1, 1], np.float32), choices=2)

    def _control(self, actions: NDArray[Any]) -> None:
        self.body["velocity"] = self.direction(actions)
        self.body["signal"] = np.where(np.rint(actions[:, :, 0]) == SPEAK, actions[:, :, 3], 0.0)

    def direction(self, actions: NDArray[Any]) -> Floats64:
        """See Cooperative.direction: who speaks stands still."""
        moves = np.rint(actions[:, :, 0]) == MOVE
        return np.asarray(np.where(moves[:, :, None], actions[:, :, 1:3], 0.0), dtype=np.float64)
