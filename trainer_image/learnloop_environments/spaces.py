"""An environment as learners and actors see it: its spaces, its steps, and the kinds of actions it takes."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Box, Discrete, Space, Tuple
from numpy.typing import NDArray

Observations = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of n environments. An episode that ends is reset within the step (SAME_STEP autoreset)."""

    observation: Observations  # [n, observations], what to act on next: already the new episode's where one ended
    successor: Observations  # [n, observations], the true next state, the final observation where an episode ended
    reward: NDArray[np.float32]  # [n]
    terminated: NDArray[np.bool_]  # [n], the task itself ended: the future is worth nothing
    truncated: NDArray[np.bool_]  # [n], only a time limit ended it: the future must be bootstrapped
    success: NDArray[np.bool_] | None = None  # [n], the task was accomplished; read where an episode ended
    values: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # [n], the step's own; NaN: not measured


@dataclass(frozen=True, slots=True)
class Bounds:
    """Continuous or hybrid actions: float32 [dimensions] each, finite, low below high.

    Hybrid: the first number is a choice, a whole number from 0 to `choices` - 1; the rest are continuous.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    choices: int = 0  # none: all numbers are continuous

    def __post_init__(self) -> None:
        """Raises ValueError for bounds between which numbers cannot be scaled."""
        numbers = slice(bool(self.choices), None)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(self.high - self.low).all()
        if not finite or not (self.low < self.high)[numbers].all():
            raise ValueError("bounds of actions must be finite in float32, each low below its high")

    @property
    def centre(self) -> NDArray[np.float32]:
        return self.low / np.float32(2) + self.high / np.float32(2)

    @property
    def reach(self) -> NDArray[np.float32]:
        """From the centre to either end; 1 for a choice that has no other."""
        reach = (self.high - self.low) / np.float32(2)
        return np.where(reach > 0, reach, np.float32(1))

    def place(self, action: NDArray[Any]) -> NDArray[Any]:
        """Numbers from [-1, 1] to [low, high], which rounding does not leave; actions [n, dimensions]."""
        return np.asarray(np.clip(action * self.reach + self.centre, self.low, self.high))

    def scale(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """From [-1, 1] to [low, high], in equal parts to the choices; actions [n, dimensions]."""
        scaled = self.place(action)
        if self.choices:
            part = np.floor((action[:, 0] + np.float32(1)) / np.float32(2) * np.float32(self.choices))
            scaled[:, 0] = np.clip(part, 0, self.choices - 1)
        return scaled

    def unscale(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """The inverse of `scale`; a choice becomes the middle of its part."""
        scaled = (action - self.centre) / self.reach
        if self.choices:
            scaled[:, 0] = middle(action[:, 0], self.choices)
        return np.asarray(scaled, dtype=np.float32)

    def greedy(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The best action for a policy's outputs [n, choices + numbers]: logits first, then means before tanh."""
        at, numbers = self.choices, len(self.low) - bool(self.choices)
        squashed = np.tanh(outputs[:, at : at + numbers])
        if not at:
            return self.place(squashed)
        best = outputs[:, :at].argmax(axis=1)[:, None].astype(np.float32)
        placed = self.place(np.concatenate((np.zeros_like(best), squashed), axis=1))
        placed[:, :1] = best
        return placed


def middle(choice: NDArray[Any], choices: int) -> NDArray[np.float32]:
    """Choices as numbers in [-1, 1]: where `Bounds.scale` finds each of them again."""
    return np.asarray((2 * choice + 1) / np.float32(choices) - 1, dtype=np.float32)


class VectorEnvironment(Protocol):
    """n environments side by side. The numbers of `members` name them over all ranks together."""

    observations: int
    actions: int  # how many, or of how many numbers where `bounds` are given
    members: range

    @property
    def bounds(self) -> Bounds | None:
        """Of continuous actions; None for discrete ones."""

    def reset(self) -> Observations:
        """Begin episode 0 everywhere; returns observations [n, observations]."""

    def step(self, actions: NDArray[Any]) -> Step:
        """Take one action in each environment: int64 [n] from 0 to `actions` - 1, or float32 [n, `actions`]."""

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        """All that is needed to go on exactly, axis 0 = environment; None when it cannot be saved."""

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """Go on from a saved state; returns the observations to act on."""

    def close(self) -> None:
        """Release what the environments hold."""


@runtime_checkable
class Imposable(Protocol):
    """A VectorEnvironment whose physics can be chosen: a Simulation, or a wrapper around one."""

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        """See Simulation.impose."""


@runtime_checkable
class Team(Protocol):
    """A VectorEnvironment whose every environment holds a team, all acting at the same time.

    Then observations are [n, agents, observations], actions [n, agents] or [n, agents, dimensions], and rewards
    [n, agents]. An agent's observation says which agent it is, so one policy can act for any of them.
    """

    agents: int


def agents(environment: object) -> int:
    """The number of agents in each environment; 1 without a team."""
    return environment.agents if isinstance(environment, Team) else 1


def team_return(reward: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rewards [n], or of a team [n, agents], as one number for each environment: the mean over its agents."""
    return reward if reward.ndim == 1 else np.asarray(reward.mean(axis=1), dtype=np.float32)


FIELD = "spec.data.environment"
Actions = NDArray[Any]  # int64 [n], or float32 [n, numbers]; hybrid: the choice first


MASKED = np.float32(-1e30)  # stands for the logit of a forbidden action: finite, so that softmax stays defined


class ActionType(enum.StrEnum):
    """Of an action space."""

    DISCRETE = "discrete"
    CONTINUOUS = "continuous"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ActionSpace:
    """One of the three kinds; see VectorEnvironment for `actions` and `bounds`."""

    actions: int
    bounds: Bounds | None = None

    @classmethod
    def of(cls, environment: VectorEnvironment) -> "ActionSpace":
        """That of an environment of any kind; a team's is that of one agent."""
        return cls(environment.actions, environment.bounds)

    @property
    def type(self) -> ActionType:
        if self.bounds is None:
            return ActionType.DISCRETE
        return ActionType.HYBRID if self.bounds.choices else ActionType.CONTINUOUS

    def validate(self, actions: Actions) -> NDArray[np.bool_]:
        """Flags [n] of actions that may be taken as they are: in range, finite, and whole numbers where they choose."""
        given = np.asarray(actions, dtype=np.float64)
        if self.bounds is None:
            return np.asarray((given >= 0) & (given < self.actions) & (given == np.floor(given)))
        if given.ndim != 2 or given.shape[1] != self.actions:
            return np.zeros(len(given), dtype=np.bool_)
        inside = np.asarray(((given >= self.bounds.low) & (given <= self.bounds.high)).all(axis=1))
        return np.asarray(inside & (given[:, 0] == np.floor(given[:, 0]))) if self.bounds.choices else inside

    def project(self, actions: Actions) -> Actions:
        """The nearest action that is valid; NaN becomes the middle, or the first choice."""
        given = np.asarray(actions, dtype=np.float64)
        if self.bounds is None:
            whole = np.clip(np.rint(np.nan_to_num(given, nan=0.0)), 0, self.actions - 1)
            return whole.astype(np.int64)
        safe = np.clip(np.where(np.isnan(given), self.bounds.centre, given), self.bounds.low, self.bounds.high)
        if self.bounds.choices:
            safe[:, 0] = np.where(np.isnan(given[:, 0]), 0, np.rint(safe[:, 0]))
        return safe.astype(np.float32)

    def normalise(self, actions: Actions) -> Actions:
        """Numbers from their bounds to [-1, 1]; choices stay as they are."""
        if self.bounds is None:
            return actions
        scaled = (np.asarray(actions, dtype=np.float32) - self.bounds.centre) / self.bounds.reach
        return self._keeping_choice(scaled, actions)

    def denormalise(self, actions: Actions) -> Actions:
        if self.bounds is None:
            return actions
        return self._keeping_choice(self.bounds.place(np.asarray(actions)), actions)

    def _keeping_choice(self, changed: Actions, actions: Actions) -> Actions:
        if self.bounds is not None and self.bounds.choices:
            changed[:, 0] = np.asarray(actions)[:, 0]
        return changed.astype(np.float32)

    def sample(self, draw: Callable[[int], NDArray[np.float64]]) -> Actions:
        """Actions, each as likely as any other, from `draw(k)`: uniform numbers [n, k] in (0, 1)."""
        if self.bounds is None:
            return (draw(1)[:, 0] * self.actions).astype(np.int64)
        return self.bounds.scale((2.0 * draw(self.actions) - 1.0).astype(np.float32))

    def gymnasium(self) -> Space[Any]:
        """As Gymnasium describes it: Discrete, Box, or a Tuple of both."""
        if self.bounds is None:
            return Discrete(self.actions)
        first = int(bool(self.bounds.choices))
        box = Box(self.bounds.low[first:], self.bounds.high[first:], dtype=np.float32)
        return Tuple((Discrete(self.bounds.choices), box)) if first else box


def mask(logits: NDArray[np.float32], allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Logits [n, actions] with those of actions that are not `allowed` [n, actions] out of reach."""
    return np.where(allowed, logits, MASKED)
