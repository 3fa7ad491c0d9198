"""The vector interface all algorithms train on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
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
