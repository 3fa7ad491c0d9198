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


@dataclass(frozen=True, slots=True)
class Windows:
    """Transitions over several steps (Sutton, 1988) from those steps whose window's successor is known; axis [n]."""

    rows: NDArray[np.int64]  # of the recording, where a window begins
    observation: NDArray[np.float32]  # [n, observations], what was seen after the window
    reward: NDArray[np.float32]  # discounted sum over the window
    alive: NDArray[np.float32]  # weight of the future: discount^(steps in the window - 1), 0 where it terminated


def windows(recording: Recording, steps: int, discount: float) -> Windows:
    """Windows of up to `steps` steps; one ends early where its episode does."""
    single = successors(recording)
    count = len(recording.last)
    place = np.full(count, -1, dtype=np.int64)  # of a step among those whose successor is known
    place[single.rows] = np.arange(len(single.rows))
    end, weight = np.arange(count), np.ones(count)
    reward = recording.reward.astype(np.float64)
    for _ in range(steps - 1):
        on = np.flatnonzero(~recording.last[end])
        end[on] += 1
        weight[on] *= discount
        reward[on] += weight[on] * recording.reward[end[on]]
        if not len(on):
            break
    rows = np.flatnonzero(place[end] >= 0)
    found = place[end[rows]]
    alive = (single.alive[found] * weight[rows]).astype(np.float32)
    return Windows(rows, single.observation[found], reward[rows].astype(np.float32), alive)
