"""What a learner tells of itself, as far as it has it: step size, exploration, gradient, buffer, actions, shield."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, MOST_ACTIONS
from learnloop_environments.wrappers import Wrapper
from learnloop_trainer.neural.schedules import step_size

_TOTAL = "total"
"""What learners with several losses call their sum."""


class ActionTally:
    """Shares of the discrete actions that were taken since the last look."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, actions: NDArray[np.generic] | None, count: int) -> None:
        """Actions of any shape, numbered from 0 to `count` - 1; None: they are no discrete ones."""
        if actions is None or not np.issubdtype(actions.dtype, np.integer):
            return
        found = np.bincount(np.asarray(actions, dtype=np.int64).ravel(), minlength=count)
        self._counts = found if len(found) != len(self._counts) else self._counts + found

    def take(self) -> dict[str, float]:
        """The shares, and begins anew; nothing of more than 32 actions."""
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
    found: dict[str, float] = {}
    done = min(1.0, learner.step / total_steps)
    if hasattr(parameters, "learning_rate") and hasattr(parameters, "learning_rate_schedule"):
        found["learning_rate"] = step_size(parameters, parameters.learning_rate, done)
    if hasattr(parameters, "epsilon_start"):
        fallen = min(1.0, done / max(1e-9, parameters.exploration_fraction))
        found["epsilon"] = parameters.epsilon_start + fallen * (parameters.epsilon_end - parameters.epsilon_start)
    norm = getattr(getattr(learner, "network", None), "gradient_norm", None)
    if norm is not None:
        found["gradient_norm"] = float(norm)
    if hasattr(getattr(learner, "replay", None), "filled"):
        found["replay_transitions"] = float(learner.replay.filled * len(learner.environment.members))
    if hasattr(learner, "intake"):
        found |= learner.intake.figures()
    stopped = interventions(learner.environment)
    if stopped is not None:
        found["invalid_actions"] = float(stopped)
    told = {("loss" if name == _TOTAL else name): value for name, value in losses.items()}
    found |= {name: float(value) for name, value in told.items() if name in FIGURES}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def interventions(environment: Any) -> int | None:
    """How many actions a safety shield replaced; None where there is none."""
    while isinstance(environment, Wrapper):
        if hasattr(environment, "interventions"):
            return int(np.sum(environment.interventions))
        environment = environment.inner
    return None
