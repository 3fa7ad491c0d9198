"""Logged episodes as transitions: what was seen, done and earned, and what was seen then."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.recordings.recording import Recording


@dataclass(frozen=True, slots=True)
class Successors:
    """The steps of a recording whose successor is known, and what it is; leading axis [n]."""

    rows: NDArray[np.int64]  # of the recording
    observation: NDArray[np.float32]  # [n, observations], what was seen then; where nothing follows, the step's own
    alive: NDArray[np.float32]  # weight of the future: 0 where the episode terminated, else 1


def successors(recording: Recording) -> Successors:
    """Every step, but the last ones of episodes that were cut off and do not say what was seen then."""
    seen = recording.last.copy()
    seen[recording.last] = recording.known_endings()
    known = np.flatnonzero(~recording.last | recording.terminated | seen)
    after = np.roll(recording.observation, -1, axis=0)
    after[recording.last] = recording.endings()
    return Successors(known, after[known], (~recording.terminated[known]).astype(np.float32))
