"""Batches of transitions from a log, for learners that take no step in an environment."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Draws, Purpose
from learnloop_trainer.algorithms.base import Arrays, Occasion
from learnloop_trainer.recordings.recording import Recording
from learnloop_trainer.recordings.transitions import successors
from learnloop_trainer.replay import Transitions


class LoggedTransitions:
    """The recording of a run, fetched once, then part of its checkpoints: what arrives later changes no run.

    A batch is drawn from the whole recording; each rank has its part of it, so that sums over all ranks are those of
    one rank.
    """

    def __init__(self, occasion: Occasion, batch_size: int) -> None:
        """Empty until `fetch` or `restore`."""
        self._occasion, self._size = occasion, batch_size
        self._draws = Draws((batch_size,), Purpose.REPLAY, occasion.seed)
        self.recording: Recording | None = None

    def fetch(self, device: torch.device) -> Recording:
        """Collective at the first call: the recording; raises ConfigError when there is none to learn from."""
        if self.recording is None:
            self.take(self._occasion.recording(), device)
        assert self.recording is not None
        return self.recording

    def take(self, recording: Recording, device: torch.device) -> None:
        """Learn from this recording; raises ConfigError when no step of it says what followed."""
        found = successors(recording)
        if not len(found.rows):
            fix = "record longer episodes, or whether they terminated"
            raise ConfigError("spec.data", "(recording)", "has no step whose successor is known", fix)

        def moved(array: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self.recording = recording
        self._observation, self._successor = moved(recording.observation[found.rows]), moved(found.observation)
        self._action, self._reward = moved(recording.action[found.rows]), moved(recording.reward[found.rows])
        self._alive = moved(found.alive)

    def batch(self, number: int) -> Transitions:
        """This rank's part of the batch for update `number`."""
        share = self._occasion.group.place.share(self._size)
        draws = self._draws.at(number)[share.start : share.stop]
        index = torch.from_numpy((draws * len(self._alive)).astype(np.int64)).to(self._alive.device)
        fields = (self._observation, self._successor, self._action, self._reward, self._alive)
        return Transitions(*(field.index_select(0, index) for field in fields))

    def state(self) -> Arrays:
        """For the checkpoint."""
        return {} if self.recording is None else self.recording.arrays()

    def restore(self, state: Arrays, device: torch.device) -> None:
        """Take up what `state` gave, if there was anything."""
        recording = Recording.of(state)
        if recording is not None:
            self.take(recording, device)
