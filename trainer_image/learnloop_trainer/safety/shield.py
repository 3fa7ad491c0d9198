"""From any policy output to an action within the constraints, for a whole batch at once.

A shield in the sense of Alshiekh et al. (2018), arXiv 1708.08611, placed after the policy. Discrete actions are masked:
a forbidden one is never the best, and what is drawn is drawn among the others. Continuous ones are projected: into the
intersection of the intervals that hold now, then each vector of components into its ball. Where the result still breaks
a constraint (the intersection may be empty) or the policy answered NaN, the fallback is executed; it obeys every
constraint whatever is observed, which is checked once, when the shield is made.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training.environment_conditions import Constraint, Safety
from learnloop_environments.action_spaces import MASKED, mask
from learnloop_environments.base import Observations
from learnloop_environments.errors import ConfigError

FIELD = "spec.safety"
SLACK = np.float32(1e-5)  # relative rounding that a limit forgives
Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
NOTHING = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Limit:
    """One constraint in arrays."""

    name: str
    when: tuple[tuple[int, float, float], ...]  # (index, above, below): above < observation[index] < below
    forbidden: Flags  # [actions]; empty where they are continuous
    chosen: Flags  # [dimensions]; empty where actions are discrete, as are low and high
    low: Floats
    high: Floats
    max_norm: float | None

    def holds(self, observation: Observations) -> Flags:
        """In which rows the limit applies [n]. A NaN in a condition's observation means that it does."""
        result = np.ones(len(observation), dtype=np.bool_)
        for index, above, below in self.when:
            result &= ~((observation[:, index] <= above) | (observation[:, index] >= below))
        return result


class Shield:
    """The constraint set of one run."""

    def __init__(self, safety: Safety, observations: int, actions: int, *, continuous: bool) -> None:
        """Raises ConfigError when a constraint does not fit the spaces or the fallback breaks one."""
        self.continuous, self._actions = continuous, actions
        self.limits = [
            self._limit(number, constraint, observations) for number, constraint in enumerate(safety.constraints)
        ]
        self.fallback = np.asarray(safety.fallback, dtype=np.float32)
        self._require_safe_fallback(safety)

    def _limit(self, number: int, constraint: Constraint, observations: int) -> Limit:
        field = f"{FIELD}.constraints[{number}]"
        kind, other = ("components", "forbid") if self.continuous else ("forbid", "components")
        chosen = constraint.components if self.continuous else constraint.forbid
        if chosen is None:
            have = "continuous" if self.continuous else "discrete"
            raise ConfigError(
                f"{field}.{other}", constraint.name, f"does not fit {have} actions", f"set {kind} instead"
            )
        for name, indices, count in (
            (kind, chosen, self._actions),
            ("when", [w.observation for w in constraint.when], observations),
        ):
            for index in indices:
                if index >= count:
                    raise ConfigError(f"{field}.{name}", index, "does not exist", f"use a number from 0 to {count - 1}")
        when = tuple(
            (w.observation, -np.inf if w.above is None else w.above, np.inf if w.below is None else w.below)
            for w in constraint.when
        )
        mask = np.zeros(self._actions, dtype=np.bool_)
        mask[chosen] = True
        if not self.continuous:
            return Limit(constraint.name, when, mask, mask[:0], NOTHING, NOTHING, None)
        low = np.where(mask, -np.inf if constraint.min is None else constraint.min, -np.inf).astype(np.float32)
        high = np.where(mask, np.inf if constraint.max is None else constraint.max, np.inf).astype(np.float32)
        return Limit(constraint.name, when, mask[:0], mask, low, high, constraint.max_norm)

    def _require_safe_fallback(self, safety: Safety) -> None:
        field, wanted = f"{FIELD}.fallback", self._actions if self.continuous else 1
        if len(self.fallback) != wanted:
            raise ConfigError(field, safety.fallback, "has the wrong length", f"give {wanted} number(s)")
        if not self.continuous and not (float(self.fallback[0]).is_integer() and 0 <= self.fallback[0] < self._actions):
            raise ConfigError(
                field, safety.fallback, "is no action", f"use a whole number from 0 to {self._actions - 1}"
            )
        for limit in self.limits:
            row = self.fallback[None] if self.continuous else self.fallback.astype(np.int64)
            if self._breaks(limit, row)[0]:
                raise ConfigError(
                    field, safety.fallback, f"breaks the constraint {limit.name}", "choose one that is always allowed"
                )

    def _breaks(self, limit: Limit, action: NDArray[np.generic]) -> Flags:
        """Which actions [n] or [n, dimensions] break this limit if it applies; NaN does."""
        if not self.continuous:
            return np.asarray(limit.forbidden[action.astype(np.int64)])
        given = action.astype(np.float32)
        slack = SLACK * np.maximum(np.abs(given), 1)
        inside = ((given >= limit.low - slack) & (given <= limit.high + slack)).all(axis=1)
        if limit.max_norm is not None:
            inside &= _norm(given, limit.chosen) <= np.float32(limit.max_norm) * (1 + SLACK) + SLACK
        return np.asarray(~inside)

    def broken(self, observation: Observations, action: NDArray[np.generic]) -> Flags:
        """Which limits actions break [limits, n]: what must be all False for what is executed."""
        rows = [limit.holds(observation) & self._breaks(limit, action) for limit in self.limits]
        return np.stack(rows) if rows else np.zeros((0, len(observation)), dtype=np.bool_)

    def allowed(self, observation: Observations) -> Flags:
        """Of discrete actions: which may be taken [n, actions]. The fallback always may."""
        result = np.ones((len(observation), self._actions), dtype=np.bool_)
        for limit in self.limits:
            result &= ~(limit.holds(observation)[:, None] & limit.forbidden)
        return result

    def mask(self, observation: Observations, logits: Floats) -> Floats:
        """Logits [n, actions] with those of forbidden actions at MASKED, and the fallback's alone where one is NaN."""
        number = np.isfinite(logits).all(axis=1, keepdims=True)
        masked = mask(logits, self.allowed(observation))
        return np.asarray(np.where(number, masked, self.only_fallback()), dtype=np.float32)

    def only_fallback(self) -> Floats:
        """Logits [actions] that leave nothing but the fallback."""
        return np.where(np.arange(self._actions) == int(self.fallback[0]), np.float32(0), MASKED).astype(np.float32)

    def project(self, observation: Observations, action: NDArray[np.generic]) -> tuple[NDArray[np.generic], Flags]:
        """Safe actions for wanted ones, and in which rows [n] it is the fallback. Discrete: forbidden → fallback."""
        if not self.continuous:
            wanted = action.astype(np.int64)
            known = (wanted >= 0) & (wanted < self._actions)
            bad = ~known | ~np.take_along_axis(self.allowed(observation), np.where(known, wanted, 0)[:, None], 1)[:, 0]
            return np.where(bad, int(self.fallback[0]), wanted), bad
        safe = action.astype(np.float32)
        for limit in self.limits:
            safe = np.where(
                limit.holds(observation)[:, None], np.minimum(np.maximum(safe, limit.low), limit.high), safe
            )
        for limit in self.limits:
            if limit.max_norm is not None:
                norm = _norm(safe, limit.chosen)
                shrink = np.float32(limit.max_norm) / np.maximum(norm, np.float32(limit.max_norm) + np.float32(1e-30))
                apply = limit.holds(observation)[:, None] & limit.chosen
                safe = np.where(apply, safe * shrink[:, None], safe)
        bad = self.broken(observation, safe).any(axis=0) | ~np.isfinite(action).all(axis=1)
        return np.where(bad[:, None], self.fallback, safe), bad


def _norm(action: Floats, chosen: Flags) -> Floats:
    """Length [n] of the chosen components; divided by the largest first, so that huge numbers do not overflow."""
    part = np.where(chosen, action, np.float32(0))
    largest = np.maximum(np.abs(part).max(axis=1), np.float32(1e-30))
    with np.errstate(invalid="ignore"):  # an infinite component has no length: NaN, which no limit lets through
        return np.asarray(largest * np.sqrt(np.square(part / largest[:, None]).sum(axis=1)), dtype=np.float32)
