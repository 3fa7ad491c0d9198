"""The actions of an environment: a choice, numbers within bounds, or both.

One description for learners (numbers scaled to [-1, 1]), recorded experience (does it fit?), the uniform baseline, and
Gymnasium's interface. Constraints that depend on observations are the shield's (see safety/).
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space, Tuple
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, VectorEnvironment

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
