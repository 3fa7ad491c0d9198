"""Whole logged episodes, step by step, with the place of each step in its episode."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.recordings import Recording

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """Steps of whole episodes, one episode after another; leading axis [steps]."""

    recording: Recording
    episode: NDArray[np.int64]  # the number of a step's episode
    age: NDArray[np.int64]  # steps of the episode before it

    @classmethod
    def of(cls, recording: Recording) -> "LoggedSteps":
        """Every piece that `last` ends is an episode from its beginning."""
        ends = np.flatnonzero(recording.last)
        begins = np.concatenate(([0], ends[:-1] + 1))
        count = ends - begins + 1
        episode = np.repeat(np.arange(len(ends)), count)
        return cls(recording, episode, np.arange(len(recording.last)) - np.repeat(begins, count))

    @property
    def episodes(self) -> int:
        return int(self.recording.last.sum())

    @property
    def longest(self) -> int:
        return int(self.age.max()) + 1

    def table(self, values: NDArray[Any], absent: float) -> Floats:
        """Numbers [steps] as [episodes, longest], with `absent` after an episode's end."""
        found = np.full((self.episodes, self.longest), absent)
        found[self.episode, self.age] = values
        return found

    def mean_to_go(self, discount: float) -> Floats:
        """What the logged episodes that were under way earned on average from each step on, [longest]."""
        under_way = self.table(np.ones(len(self.age)), 0.0)
        return np.asarray(self.returns_to_go(discount).sum(axis=0) / under_way.sum(axis=0))

    def returns_to_go(self, discount: float) -> Floats:
        """Discounted rewards from each step on to the episode's end [episodes, longest]; 0 after it."""
        reward = self.table(self.recording.reward, 0.0)
        found = np.zeros_like(reward)
        running = np.zeros(len(reward))
        for age in range(reward.shape[1] - 1, -1, -1):
            running = reward[:, age] + discount * running
            found[:, age] = running
        return found
