"""Worlds with a team: cooperation in two dimensions, a relay, the two-step game."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split, Words
from learnloop_environments.simulation import NOMINAL, Conditions, Flags, Floats64, Level, Outcome, TeamSimulation, box
from learnloop_environments.spaces import Bounds, Observations

AGENTS, SPEED, SIZE = 3, 0.25, 0.15
MOVES = np.asarray([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
COLLISION, COVERED = 0.5, 2.0
CREDITS = ("team", "individual", "difference")


class Cooperative(TeamSimulation):
    """Cooperation in two dimensions: three agents cover three places and speak while they do.

    After "simple spread" (Lowe et al., 2017, arXiv 1706.02275, section 5.1), in arrays. The team's
    reward is minus the mean over places of the distance to the nearest agent, minus 0.5 for each pair that collides. It
    gets 2 while every place is covered (the specification's cooperation bonus). Credit for it is `team` (all get it),
    `individual` (minus the distance to the agent's own nearest place) or `difference`: the team's reward minus what it
    would have been without the agent (Wolpert & Tumer, 2001), which all the others' luck cancels out of.

    Controls: `Cooperative` moves by five discrete moves; `CooperativeContinuous` by a velocity and a signal, each in
    [-1, 1], that the others hear in the next step; `CooperativeHybrid` chooses to move, by two numbers, or to stand and
    signal a third one. Seen by each: own place and velocity, the places, the others and their signals, and which agent
    one is.
    """

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
            raise ConfigError("spec.data.credit", conditions.credit, "is not a way to give credit", fix)
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
        covered, attempts = body["covered"], np.ones(len(distance))
        team = {"collisions": self._collisions(list(range(AGENTS))), "cooperation": covered}
        return Outcome.going_on(self._credit(distance), joint_attempts=attempts, joint_successes=covered, **team)

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
        return np.asarray(worth - COLLISION * self._collisions(present))

    def _collisions(self, present: list[int]) -> Floats64:
        """How many pairs of these agents collide [n]."""
        place = self.body["place"]
        pairs = [place[:, one] - place[:, other] for one, other in combinations(present, 2)]
        return np.asarray(np.sum([np.linalg.norm(apart, axis=1) < SIZE for apart in pairs], axis=0), dtype=np.float64)

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
        """These actions as directions [n, agents, 2]."""
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
        """The signal has none."""
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
        """The agent that speaks stands still."""
        moves = np.rint(actions[:, :, 0]) == MOVE
        return np.asarray(np.where(moves[:, :, None], actions[:, :, 1:3], 0.0), dtype=np.float64)


NEAR = 0.2  # mean distance of answer and goal in a successful episode


class Relay(TeamSimulation):
    """Relay: one agent knows the goal, the other one can act on it, and only a signal connects them.

    The smallest continuous form of "cooperative communication" (Lowe et al., 2017, arXiv 1706.02275, section 5.1). Each
    episode draws a goal in [-1, 1]. The first agent sees it and does nothing but signal a number; one step later the
    second agent sees the number and answers with one of its own. Both earn minus the squared distance of answer and
    goal in every step but the first, when nothing has been said yet. A signal's worth depends on what the listener
    makes of it: a critic that sees both can tell, one that sees the speaker alone sees a moving target. Seen: goal (the
    speaker), signal (the listener), whether it is the first step, and which agent one is.

    `RelayHybrid`: a goal is a kind, one of three, and an amount, and so is an answer; one of the wrong kind is as far
    off as 1. Both agents see the kind, as a one-hot vector; only the speaker sees the amount, and its signal's number
    tells it.
    """

    agents = 2
    observations = 3 + 2
    actions = 1
    bounds = box(-1.0, 1.0, 1)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"max_steps": 4}

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return {name: np.zeros(count) for name in ("goal", "signal", "distance")}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        self.body["goal"][which] = self._goals(seeds)
        self.body["signal"][which] = self.body["distance"][which] = 0.0

    def _goals(self, seeds: Words) -> Floats64:
        return 2.0 * self._draws(seeds, 1)[:, 0] - 1.0

    def _miss(self, answer: NDArray[Any]) -> Floats64:
        """The distance of the listener's answers [n, numbers] and the goal."""
        return np.asarray(np.abs(answer[:, 0] - self.body["goal"]), dtype=np.float64)

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        distance = np.where(self.age > 0, self._miss(actions[:, 1]), 0.0)
        self.body["distance"] = self.body["distance"] + distance
        self.body["signal"] = actions[:, 0, -1].copy()
        joint = {"joint_attempts": self.age > 0, "joint_successes": (self.age > 0) & (distance < NEAR)}
        return Outcome.going_on(np.repeat(-np.square(distance)[:, None], self.agents, axis=1), **joint)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["distance"] <= NEAR * (self.parameter["max_steps"] - 1))

    def _observe(self) -> Observations:
        count = len(self.members)
        view = np.zeros((count, self.agents, 3), dtype=np.float32)
        view[:, 0, 0], view[:, 1, 1] = self.body["goal"], self.body["signal"]
        view[:, :, 2] = (self.age == 0)[:, None]
        return np.concatenate((view, self._names(count)), axis=2)


KINDS = 3


class RelayHybrid(Relay):
    """n pairs that both know the kind of the goal; only the speaker knows the amount."""

    observations = KINDS + 2 + 1 + 2
    actions = 2
    bounds = Bounds(np.asarray([0, -1], np.float32), np.asarray([KINDS - 1, 1], np.float32), choices=KINDS)

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        return super()._blank(count) | {"goal": np.zeros((count, 2))}

    def _goals(self, seeds: Words) -> Floats64:
        draws = self._draws(seeds, 2)
        return np.stack((np.floor(KINDS * draws[:, 0]), 2.0 * draws[:, 1] - 1.0), axis=1)

    def _miss(self, answer: NDArray[Any]) -> Floats64:
        goal = self.body["goal"]
        return np.where(np.rint(answer[:, 0]) == goal[:, 0], np.abs(answer[:, 1] - goal[:, 1]), 1.0)

    def _observe(self) -> Observations:
        kind = np.eye(KINDS)[np.rint(self.body["goal"][:, 0]).astype(np.int64)]
        view = np.zeros((len(self.members), self.agents, KINDS + 3), dtype=np.float32)
        view[:, :, :KINDS] = kind[:, None]
        view[:, 0, KINDS], view[:, 1, KINDS + 1] = self.body["goal"][:, 1], self.body["signal"]
        view[:, :, -1] = (self.age == 0)[:, None]
        return np.concatenate((view, self._names(len(self.members))), axis=2)


PAYOFF = np.asarray([[[0.0, 0.0], [0.0, 0.0]], [[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])  # start, A, B


class TwoStep(TeamSimulation):
    """The two-step game of Rashid et al. (2018), arXiv 1803.11485, section 5 and table 1.

    The first agent's first action chooses the second step's game: A pays 7 whatever is done; B pays [[0, 1], [1, 8]].
    Learners that take their mates for part of the world settle on 7; who represents the joint value finds 8. Seen by
    both: which of the three states it is, and which agent one is.
    """

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
        state = np.eye(len(PAYOFF), dtype=np.float32)[self.body["game"]]
        shared = np.broadcast_to(state[:, None], (count, self.agents, len(PAYOFF)))
        return np.concatenate((shared, self._names(count)), axis=2)
