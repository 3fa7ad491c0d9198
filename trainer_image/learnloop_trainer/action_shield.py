"""From any policy output to an action within the constraints, for a whole batch.

A shield in the sense of Alshiekh et al. (2018), arXiv 1708.08611, placed after the policy. Discrete actions are masked:
a forbidden one is never the best, and what is drawn is drawn among the others. Continuous ones are projected: into the
intersection of the intervals that hold now, then each vector of components into its ball. Where the result still breaks
a constraint (the intersection may be empty) or the policy answered NaN, the fallback is executed; it obeys every
constraint whatever is observed, which is checked once, when the shield is made.

A fallback policy acts where the policy's own action breaks a constraint, or is NaN; of discrete actions, where its best
one does. What it does is masked or projected in its turn, with an action of the shield's own as the fallback.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training.environment_conditions import Constraint, Safety
from learnloop_environments import errors
from learnloop_environments.spaces import MASKED, Bounds, Observations, mask
from learnloop_trainer.fallback_policy import FallbackPolicy

FIELD = "spec.safety"
SLACK = np.float32(1e-5)  # relative rounding that a limit forgives
Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
NOTHING = np.zeros(0, dtype=np.float32)
LEAST = MASKED / 2
"""Least logit of a fallback policy, which may mask by itself: a forbidden action is never as good as an allowed one."""


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

    def __init__(
        self,
        safety: Safety,
        observations: int,
        actions: int,
        *,
        continuous: bool,
        policy: bytes | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """`policy`: the file of its fallback policy, which acts within `bounds`. Raises ConfigError when a
        constraint or the fallback does not fit the spaces, or the fallback breaks a constraint."""
        self.continuous, self._actions = continuous, actions
        self.limits = [
            self._limit(number, constraint, observations) for number, constraint in enumerate(safety.constraints)
        ]
        self.policy: FallbackPolicy | None = None
        if safety.fallback is not None:
            self.fallback = np.asarray(safety.fallback, dtype=np.float32)
            self._require_safe_fallback(safety.fallback)
        else:
            uri = safety.fallback_policy.uri if safety.fallback_policy else ""
            self.policy = FallbackPolicy(
                policy or b"", uri, observations, actions, continuous=continuous, bounds=bounds
            )
            self.fallback = self._always_safe(self.policy.outputs(np.zeros((1, observations), np.float32))[0], safety)

    def _limit(self, number: int, constraint: Constraint, observations: int) -> Limit:
        field = f"{FIELD}.constraints[{number}]"
        kind, other = ("components", "forbid") if self.continuous else ("forbid", "components")
        chosen = constraint.components if self.continuous else constraint.forbid
        if chosen is None:
            have = "continuous" if self.continuous else "discrete"
            raise errors.ConfigError(
                f"{field}.{other}", constraint.name, f"does not fit {have} actions", f"set {kind} instead"
            )
        for name, indices, count in (
            (kind, chosen, self._actions),
            ("when", [w.observation for w in constraint.when], observations),
        ):
            for index in indices:
                if index >= count:
                    raise errors.ConfigError(
                        f"{field}.{name}", index, "does not exist", f"use a number from 0 to {count - 1}"
                    )
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

    def _require_safe_fallback(self, fallback: list[float]) -> None:
        field, wanted = f"{FIELD}.fallback", self._actions if self.continuous else 1
        if len(self.fallback) != wanted:
            raise errors.ConfigError(field, fallback, "has the wrong length", f"give {wanted} number(s)")
        if not self.continuous and not (float(self.fallback[0]).is_integer() and 0 <= self.fallback[0] < self._actions):
            raise errors.ConfigError(
                field, fallback, "is not an action", f"use a whole number from 0 to {self._actions - 1}"
            )
        for limit in self.limits:
            row = self.fallback[None] if self.continuous else self.fallback.astype(np.int64)
            if self._breaks(limit, row)[0]:
                raise errors.ConfigError(
                    field, fallback, f"breaks the constraint {limit.name}", "choose one that is always allowed"
                )

    def _always_safe(self, near: Floats, safety: Safety) -> Floats:
        """An action that obeys every constraint whatever is observed: near one, or the first of the discrete ones."""
        if not self.continuous:
            free = np.flatnonzero(~np.any([limit.forbidden for limit in self.limits], axis=0))
            safe, broken = free[:1].astype(np.float32), not len(free)
        else:
            row = near[None]
            for limit in self.limits:
                row = np.minimum(np.maximum(row, limit.low), limit.high)
            for limit in self.limits:
                row = _shrunk(row, limit, np.ones(1, dtype=np.bool_))
            safe, broken = row[0], any(self._breaks(limit, row)[0] for limit in self.limits)
        if broken:
            names = ", ".join(constraint.name for constraint in safety.constraints)
            problem, fix = "leave no action that obeys all of them", "widen one, or set fallback for fallbackPolicy"
            raise errors.ConfigError(f"{FIELD}.constraints", names, problem, fix)
        return safe

    def _breaks(self, limit: Limit, action: NDArray[np.generic], more: float = 0.0) -> Flags:
        """Mask of actions [n] or [n, dimensions] that break this limit, and `more`, if it applies; NaN does."""
        if not self.continuous:
            return np.asarray(limit.forbidden[action.astype(np.int64)])
        given = action.astype(np.float32)
        slack = SLACK * np.maximum(np.abs(given), 1) + np.float32(more)
        inside = ((given >= limit.low - slack) & (given <= limit.high + slack)).all(axis=1)
        if limit.max_norm is not None:
            inside &= _norm(given, limit.chosen) <= np.float32(limit.max_norm) * (1 + SLACK) + SLACK + np.float32(more)
        return np.asarray(~inside)

    def broken(self, observation: Observations, action: NDArray[np.generic]) -> Flags:
        """Mask [limits, n] of limits that actions break: all False for what is executed."""
        rows = [limit.holds(observation) & self._breaks(limit, action) for limit in self.limits]
        return np.stack(rows) if rows else np.zeros((0, len(observation)), dtype=np.bool_)

    def allowed(self, observation: Observations) -> Flags:
        """Of discrete actions: which may be taken [n, actions]. The fallback always may."""
        result = np.ones((len(observation), self._actions), dtype=np.bool_)
        for limit in self.limits:
            result &= ~(limit.holds(observation)[:, None] & limit.forbidden)
        return result

    def mask(self, observation: Observations, logits: Floats) -> tuple[Floats, Flags]:
        """Logits [n, actions] with those of forbidden actions at MASKED, or with the fallback's alone, and in which
        rows [n] it is the fallback's."""
        bad, masked = np.asarray(~np.isfinite(logits).all(axis=1)), mask(logits, self.allowed(observation))
        if self.policy is not None:
            bad = np.asarray(bad | (logits.max(axis=1) > masked.max(axis=1)))
        if not bad.any():
            return masked, bad
        return np.where(bad[:, None], self.only_fallback(self._instead(observation)), masked), bad

    def only_fallback(self, action: NDArray[np.int64] | None = None) -> Floats:
        """Logits [n, actions] that leave nothing but these actions; left out, the fallback."""
        chosen = np.asarray([int(self.fallback[0])]) if action is None else action
        return np.where(np.arange(self._actions) == chosen[:, None], np.float32(0), MASKED)

    def _instead(self, observation: Observations) -> NDArray[np.int64]:
        """The discrete actions [n], or [1] for all, of the fallback."""
        if self.policy is None:
            return np.asarray([int(self.fallback[0])])
        wanted = np.maximum(self.policy.outputs(observation), LEAST)
        return np.asarray(mask(wanted, self.allowed(observation)).argmax(axis=1))

    def unsure(self, observation: Observations, outputs: Floats, tolerance: float) -> Flags:
        """Rows [n] in which rounding of what the policy wants may decide whether the fallback policy acts."""
        if self.policy is None:
            return np.zeros(len(observation), dtype=np.bool_)
        if not self.continuous:
            allowed = self.allowed(observation)
            free, forbidden = (mask(outputs, rows).max(axis=1) for rows in (allowed, ~allowed))
            return np.asarray(np.abs(free - forbidden) <= 2 * tolerance)
        rows = [
            limit.holds(observation)
            & (self._breaks(limit, outputs, -tolerance) != self._breaks(limit, outputs, tolerance))
            for limit in self.limits
        ]
        return np.asarray(np.any(rows, axis=0))

    def project(self, observation: Observations, action: NDArray[np.generic]) -> tuple[NDArray[np.generic], Flags]:
        """Safe actions for wanted ones, and in which rows [n] it is the fallback. Discrete: forbidden → fallback."""
        if not self.continuous:
            wanted = action.astype(np.int64)
            valid = (wanted >= 0) & (wanted < self._actions)
            bad = ~valid | ~np.take_along_axis(self.allowed(observation), np.where(valid, wanted, 0)[:, None], 1)[:, 0]
            return (np.where(bad, self._instead(observation), wanted) if bad.any() else wanted), bad
        safe, over = action.astype(np.float32), np.asarray([False] * len(action))
        if self.policy is not None:
            over = np.asarray(self.broken(observation, safe).any(axis=0) | ~np.isfinite(safe).all(axis=1))
            if over.any():
                safe = np.where(over[:, None], self.policy.outputs(observation), safe)
        finite = np.isfinite(safe).all(axis=1)
        for limit in self.limits:
            safe = np.where(
                limit.holds(observation)[:, None], np.minimum(np.maximum(safe, limit.low), limit.high), safe
            )
        for limit in self.limits:
            safe = _shrunk(safe, limit, limit.holds(observation))
        bad = np.asarray(self.broken(observation, safe).any(axis=0) | ~finite)
        return np.where(bad[:, None], self.fallback, safe), bad | over


def _shrunk(action: Floats, limit: Limit, holds: Flags) -> Floats:
    """Actions [n, dimensions] whose chosen components are no longer than a limit wants, where it holds."""
    if limit.max_norm is None:
        return action
    norm = _norm(action, limit.chosen)
    shrink = np.float32(limit.max_norm) / np.maximum(norm, np.float32(limit.max_norm) + np.float32(1e-30))
    return np.where(holds[:, None] & limit.chosen, action * shrink[:, None], action)


def _norm(action: Floats, chosen: Flags) -> Floats:
    """Length [n] of the chosen components; divided by the largest first, so that huge numbers do not overflow."""
    part = np.where(chosen, action, np.float32(0))
    largest = np.maximum(np.abs(part).max(axis=1), np.float32(1e-30))
    with np.errstate(invalid="ignore"):  # an infinite component has no length: NaN, which no limit lets through
        return np.asarray(largest * np.sqrt(np.square(part / largest[:, None]).sum(axis=1)), dtype=np.float32)
