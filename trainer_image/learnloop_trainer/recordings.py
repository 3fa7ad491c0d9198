"""Logged experience in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments.spaces import Observations


@dataclass(frozen=True, slots=True)
class Recording:
    """Observations, actions and rewards; leading axis [steps]."""

    observation: NDArray[np.float32]  # [steps, observations]
    action: NDArray[Any]  # int64 [steps], or float32 [steps, dimensions] scaled to [-1, 1]
    reward: NDArray[np.float32]  # [steps], the environment's own, or its part in what the RewardPolicy gave
    log_prob: NDArray[np.float32]  # [steps], of the policy that acted; NaN where it was not recorded
    last: NDArray[np.bool_]  # [steps], the last one of its episode, or the last one before steps that do not fit
    terminated: NDArray[np.bool_]  # [steps], the environment ended the episode here
    # What was seen after each step marked last [those, observations], and whether somebody recorded it [those]; if
    # not, the step's own observation stands there. None: none was recorded.
    beyond: NDArray[np.float32] | None = None
    beyond_recorded: NDArray[np.bool_] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        named = {f"recording.{item.name}": getattr(self, item.name) for item in fields(self)}
        return {name: array for name, array in named.items() if array is not None}

    def endings(self) -> NDArray[np.float32]:
        """Observation after each step marked last; that step's own where none was recorded."""
        return self.observation[self.last] if self.beyond is None else self.beyond

    def endings_recorded(self) -> NDArray[np.bool_]:
        """For each step marked last: did somebody record what was seen after it?"""
        return np.zeros(int(self.last.sum()), dtype=np.bool_) if self.beyond_recorded is None else self.beyond_recorded

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> "Recording | None":
        """The inverse of `arrays`; None without a recording among them."""
        if "recording.observation" not in arrays:
            return None
        names = [item.name for item in fields(cls) if f"recording.{item.name}" in arrays]
        columns: dict[str, NDArray[Any]] = {name: np.array(arrays[f"recording.{name}"]) for name in names}
        return cls(**columns)


@dataclass(frozen=True, slots=True)
class Successors:
    """The steps of a recording whose successor is known, and what it is; leading axis [n]."""

    rows: NDArray[np.int64]  # of the recording
    observation: NDArray[np.float32]  # [n, observations], what was seen then; where nothing follows, the step's own
    alive: NDArray[np.float32]  # weight of the future: 0 where the episode terminated, else 1


def successors(recording: Recording) -> Successors:
    """Every step, but the last ones of episodes that were cut off and do not say what was seen then."""
    complete = recording.last.copy()
    complete[recording.last] = recording.endings_recorded()
    rows = np.flatnonzero(~recording.last | recording.terminated | complete)
    after = np.roll(recording.observation, -1, axis=0)
    after[recording.last] = recording.endings()
    return Successors(rows, after[rows], (~recording.terminated[rows]).astype(np.float32))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A policy's actions for each of n observations: k of them, each with a weight."""

    action: NDArray[Any]  # int64 [n, k], or float32 [n, k, numbers] as the environment takes them
    weight: NDArray[np.float64]  # [n, k], sums to 1 in each row


class Target(Protocol):
    """A policy that knows how likely it does what."""

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> NDArray[np.float64]:
        """Natural log of the probability, or of the density, of actions [n]; NaN where there is none to compare."""

    def mixture(self, observation: Observations) -> Mixture:
        """All that it may choose, or a draw of its numbers."""


@dataclass(slots=True)
class ReadExperience:
    """Nothing at first, then the same to the run's end."""

    note: ExperienceRead | None = None
    """For the proof."""
    proof: Recording | None = None
    """Whole episodes that nothing is learned from: they prove a run that has no environment."""
