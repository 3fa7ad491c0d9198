"""Figures of a policy's training that heartbeats report: episodes, shares of actions, the learner's own."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, MOST_ACTIONS
from learnloop_environments import wrappers
from learnloop_trainer import progress_reporter, shielded_environment
from learnloop_trainer.neural.schedules import step_size


@dataclass(slots=True)
class Episodes:
    """Undiscounted returns and lengths of this rank's episodes."""

    running: NDArray[np.float64]
    age: NDArray[np.int64]
    lengths: deque[int]
    recent: deque[float]
    trail: deque[float]
    """Of one difficulty, in which the operator looks for anomalies; no part of checkpoints."""

    def note(self, reward: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Account for rewards [steps, environments]."""
        for step_reward, step_ended in zip(reward, ended, strict=True):
            self.running += step_reward
            self.age += 1
            if step_ended.any():
                self.lengths.extend(self.age[step_ended].tolist())
                self.age[step_ended] = 0
                ended = self.running[step_ended].tolist()
                self.recent.extend(ended)
                self.trail.extend(ended)
                self.running[step_ended] = 0.0

    def figures(self) -> dict[str, float]:
        return {"episode_length": float(np.mean(self.lengths))} if self.lengths else {}


def no_episodes(count: int) -> Episodes:
    recent, trail = deque[float](maxlen=progress_reporter.RECENT), deque[float](maxlen=progress_reporter.TRAIL)
    return Episodes(np.zeros(count), np.zeros(count, np.int64), deque(maxlen=progress_reporter.RECENT), recent, trail)


_TOTAL = "total"
"""Name of the sum of several losses."""


class ActionTally:
    """Shares of the discrete actions that were taken since the last look."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, actions: NDArray[np.generic] | None, count: int) -> None:
        """Actions of any shape, numbered from 0 to `count` - 1; None: they are not discrete."""
        if actions is None or not np.issubdtype(actions.dtype, np.integer):
            return
        counts = np.bincount(np.asarray(actions, dtype=np.int64).ravel(), minlength=count)
        self._counts = counts if len(counts) != len(self._counts) else self._counts + counts

    def take(self) -> dict[str, float]:
        """The shares, and count again from 0; nothing of more than 32 actions."""
        counts, self._counts = self._counts, np.zeros(0, dtype=np.int64)
        total = counts.sum()
        if not total or len(counts) > MOST_ACTIONS:
            return {}
        return {f"{ACTION_SHARE}{index}": float(count / total) for index, count in enumerate(counts)}


def learner_figures(learner: Any, total_steps: int, losses: Mapping[str, float]) -> dict[str, float]:
    """Figures as `learnloop_api.wire.training` names them; those that the learner does not have are left out.

    Reads tensors, so that a GPU is waited for: once a second is often enough.
    """
    parameters: Any = getattr(learner, "parameters", None)
    figures: dict[str, float] = {}
    done = min(1.0, learner.step / total_steps)
    if hasattr(parameters, "learning_rate") and hasattr(parameters, "learning_rate_schedule"):
        figures["learning_rate"] = step_size(parameters, parameters.learning_rate, done)
    if hasattr(parameters, "epsilon_start"):
        fallen = min(1.0, done / max(1e-9, parameters.exploration_fraction))
        figures["epsilon"] = parameters.epsilon_start + fallen * (parameters.epsilon_end - parameters.epsilon_start)
    norm = getattr(getattr(learner, "network", None), "gradient_norm", None)
    if norm is not None:
        figures["gradient_norm"] = float(norm)
    if hasattr(getattr(learner, "replay", None), "filled"):
        figures["replay_transitions"] = float(learner.replay.filled * len(learner.environment.members))
    shield = wrappers.outermost(learner.environment, shielded_environment.Shielded)
    if shield is not None:
        figures["invalid_actions"] = float(shield.interventions.sum())
    named = {("loss" if name == _TOTAL else name): value for name, value in losses.items()}
    figures |= {name: float(value) for name, value in named.items() if name in FIGURES}
    return {name: value for name, value in figures.items() if np.isfinite(value)}
