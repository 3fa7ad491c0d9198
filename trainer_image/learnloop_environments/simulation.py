"""The base of the built-in simulations: vectorised, exact to save, the same on any number of ranks.

Every random number is a pure function of the episode's seed (and, within an episode, of its age), so a simulation's
whole state is its arrays. Levels of difficulty and randomised physics (domain randomisation, Tobin et al., 2017,
arXiv 1703.06907) take effect where the next episode begins.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments import errors, randomness, spaces

Floats64 = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Level:
    """One degree of difficulty."""

    name: str
    promote_at: float  # share of successful episodes that leads to the next level
    parameters: Mapping[str, float] = field(default_factory=dict)  # what differs from the simulation's PARAMETERS


@dataclass(frozen=True, slots=True)
class Conditions:
    """How an environment is to be played."""

    level: str | None = None  # left out, the easiest
    randomise: tuple[tuple[str, float, float], ...] = ()  # (parameter, low, high): uniform, drawn for each episode
    credit: str = "team"  # of teams: team, individual or difference
    max_steps: int | None = None  # of an episode, which is then truncated; left out, the environment's own limit


NOMINAL = Conditions()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rewards and ends of one step, before time limits."""

    reward: NDArray[Any]  # [n], of teams [n, agents]
    terminated: Flags
    success: Flags
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # [n], counts of this step, for RewardPolicies

    @classmethod
    def going_on(cls, reward: NDArray[Any], **values: NDArray[Any]) -> "Outcome":
        flags = np.zeros(len(reward), dtype=np.bool_)
        return cls(reward, flags, flags, values)


class Simulation(ABC):
    """n simulations. A subclass says how an episode begins, goes on and looks."""

    observations: int
    actions: int
    bounds: spaces.Bounds | None = None
    PARAMETERS: ClassVar[Mapping[str, float]] = {}  # physics at their nominal values; max_steps is the time limit
    LEVELS: ClassVar[tuple[Level, ...]] = ()

    def __init__(self, split: randomness.Split, seed: int, members: range, conditions: Conditions = NOMINAL) -> None:
        """Environments `members` of the run with this seed; raises ConfigError for unknown levels or parameters."""
        self.members = members
        self._split, self._seed = split, seed
        self._numbers = np.asarray(members, dtype=np.uint64)
        self.conditions = conditions
        self.level = self._level_number(conditions.level)
        for name, _, _ in conditions.randomise:
            if name not in self.PARAMETERS or name == "max_steps":
                names = ", ".join(sorted(set(self.PARAMETERS) - {"max_steps"}))
                fix = f"choose one of {names}" if names else "leave it out: this environment has no parameters"
                raise errors.ConfigError(
                    "spec.data.randomise", name, f"is not a parameter of {type(self).__name__}", fix
                )
        self.reset()

    def _level_number(self, name: str | None) -> int:
        names = [level.name for level in self.LEVELS]
        if name is None:
            return 0
        if name not in names:
            fix = f"choose one of {', '.join(names)}" if names else "leave it out: this environment has one level only"
            raise errors.ConfigError("spec.data.level", name, f"is not a level of {type(self).__name__}", fix)
        return names.index(name)

    def reset(self) -> spaces.Observations:
        count = len(self.members)
        self.age = np.zeros(count, dtype=np.int64)
        self.episode = np.zeros(count, dtype=np.int64)
        self.seeds = np.zeros(count, dtype=np.uint64)
        self.parameter = {name: np.full(count, value, dtype=np.float64) for name, value in self.PARAMETERS.items()}
        self.body = self._blank(count)
        self._imposed: Mapping[str, Floats64] = {}
        self._restart(np.arange(count))
        return self._observe()

    def impose(self, parameters: Mapping[str, Floats64]) -> spaces.Observations:
        """Begin new episodes everywhere, with these parameters [n] in all that follow, until others are imposed.

        None of them are part of `state`: impose them again after `restore`.
        """
        self.episode += 1
        self._imposed = {name: np.asarray(values, dtype=np.float64) for name, values in parameters.items()}
        self._restart(np.arange(len(self.members)))
        return self._observe()

    def nominal(self) -> dict[str, float]:
        """The parameters at the level that is played now, before anything is randomised or imposed."""
        return dict(self.PARAMETERS) | (dict(self.LEVELS[self.level].parameters) if self.LEVELS else {})

    def _restart(self, which: NDArray[np.intp]) -> None:
        seeds = randomness.episode_seeds(self._split, self._seed, self._numbers[which], self.episode[which])
        self.seeds[which], self.age[which] = seeds, 0
        for name, value in self.nominal().items():
            self.parameter[name][which] = value
        for number, (name, low, high) in enumerate(self.conditions.randomise):
            self.parameter[name][which] = low + (high - low) * randomness.uniforms(
                randomness.Purpose.CONDITIONS, seeds, number
            )
        for name, values in self._imposed.items():
            self.parameter[name][which] = values[which]
        limit = math.inf if self.conditions.max_steps is None else self.conditions.max_steps
        self.parameter["max_steps"][which] = np.minimum(self.parameter["max_steps"][which], limit)
        self._begin(which, seeds)

    def step(self, actions: NDArray[Any]) -> spaces.Step:
        """Numbers beyond the bounds are projected onto them."""
        if self.bounds is not None:
            actions = np.clip(np.asarray(actions, dtype=np.float64), self.bounds.low, self.bounds.high)
        outcome = self._advance(actions)
        self.age += 1
        truncated = (self.age >= self.parameter["max_steps"]) & ~outcome.terminated
        successor = observation = self._observe()
        ended = outcome.terminated | truncated
        success = outcome.success | self._succeeded(truncated)
        if ended.any():
            which = np.flatnonzero(ended)
            self.episode[which] += 1
            self._restart(which)
            observation = self._observe()
        reward = np.asarray(outcome.reward, dtype=np.float32)
        values = {name: np.asarray(count, dtype=np.float64) for name, count in outcome.values.items()}
        return spaces.Step(observation, successor, reward, outcome.terminated, truncated, success, values)

    def _succeeded(self, truncated: Flags) -> Flags:
        """Flags [n] of episodes that run out of time now and have reached their aim."""
        return np.zeros_like(truncated)

    def _draws(self, seeds: randomness.Words, count: int) -> Floats64:
        """Uniform numbers [m, count] for the start of episodes."""
        return randomness.uniforms(randomness.Purpose.START, seeds[:, None], np.arange(count)[None, :])

    def _chance(self, count: int) -> Floats64:
        """Uniform numbers [n, count] for this step."""
        return randomness.uniforms(
            randomness.Purpose.DYNAMICS, self.seeds[:, None], self.age[:, None], np.arange(count)[None, :]
        )

    def _normals(self, count: int) -> Floats64:
        """Standard normal numbers [n, count] for this step (Box & Muller, 1958)."""
        first, second = np.split(self._chance(2 * count), 2, axis=1)
        return np.asarray(np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second))

    @abstractmethod
    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        """State arrays for `count` environments, axis 0 = environment; their values do not matter yet."""

    @abstractmethod
    def _begin(self, which: NDArray[np.intp], seeds: randomness.Words) -> None:
        """Begin episodes with these seeds in environments `which`."""

    @abstractmethod
    def _advance(self, actions: NDArray[Any]) -> Outcome:
        """Take one step everywhere."""

    @abstractmethod
    def _observe(self) -> spaces.Observations:
        """The present observations [n, observations], in memory of its own."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        state: dict[str, NDArray[Any]] = {"age": self.age, "episode": self.episode, "seeds": self.seeds}
        state |= {f"parameter.{name}": array for name, array in self.parameter.items()}
        state |= {f"body.{name}": array for name, array in self.body.items()}
        return {name: array.copy() for name, array in state.items()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> spaces.Observations:
        self.age, self.episode = (np.array(state[name], dtype=np.int64) for name in ("age", "episode"))
        self.seeds = np.array(state["seeds"], dtype=np.uint64)
        self.parameter = {name: np.array(state[f"parameter.{name}"], dtype=np.float64) for name in self.parameter}
        self.body = {name: np.array(state[f"body.{name}"], dtype=array.dtype) for name, array in self.body.items()}
        self._imposed = {}
        return self._observe()

    def close(self) -> None:  # noqa: B027 - there is nothing to release, and no subclass has anything
        """Nothing to release."""


class TeamSimulation(Simulation):
    """n teams; see base.Team for the shapes."""

    agents: int

    def _names(self, count: int) -> NDArray[np.float32]:
        """One-hot names of agents [count, agents, agents]: the last part of every agent's observation."""
        return np.broadcast_to(np.eye(self.agents, dtype=np.float32), (count, self.agents, self.agents))


def box(low: float, high: float, dimensions: int) -> spaces.Bounds:
    return spaces.Bounds(np.full(dimensions, low, dtype=np.float32), np.full(dimensions, high, dtype=np.float32))
