"""Costs of held-out episodes: outcome values that constraints limit, and interventions of the shield."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import SafetyConstraint
from learnloop_api.wire.training import Cost
from learnloop_common.reward_rules.outcome_values import OutcomeValues, source
from learnloop_environments import VectorEnvironment, errors, rewarded_by_policy, spaces, wrappers
from learnloop_trainer import shielded_environment, statistics
from learnloop_trainer.evaluation.held_out_episodes import World

INTERVENTIONS = "interventions"
Replaced = Callable[[], NDArray[np.bool_] | None]
"""Flags of the newest actions that a shield within the policy replaced [n * agents]; None: it has none."""


class Costed(wrappers.Wrapper):
    """Sums up outcome values of each member's first episode."""

    def __init__(
        self, inner: VectorEnvironment, limits: Sequence[SafetyConstraint], keys: Sequence[str], replaced: Replaced
    ) -> None:
        super().__init__(inner)
        self._limits, self._keys, self._sources = limits, keys, {source(key) for key in keys} | {*keys}
        self._shield, self._replaced = wrappers.outermost(inner, shielded_environment.Shielded), replaced
        self._running = np.ones(len(inner.members), dtype=np.bool_)
        self._values = [OutcomeValues() for _ in inner.members]

    def step(self, actions: NDArray[Any]) -> spaces.Step:
        within, before = self._replaced(), 0 if self._shield is None else self._shield.interventions.copy()
        step = self.inner.step(actions)
        rewarded_by_policy.require_numbers(self._limits, step.values)
        values = dict(step.values)
        if self._shield is not None:
            own = 0 if within is None else within.reshape(len(self.members), -1).sum(axis=1)
            values[INTERVENTIONS] = (self._shield.interventions - before + own).astype(np.float64)
        for name in self._sources & values.keys():
            numbers = values[name].tolist()
            for number in np.flatnonzero(self._running).tolist():
                self._values[number].note({name: numbers[number]})
        self._running &= ~(step.terminated | step.truncated)
        return step

    def costs(self) -> NDArray[np.float64]:
        """[members, keys]; NaN for a value that an episode does not report."""
        return np.asarray([[one.get(key, np.nan) for key in self._keys] for one in self._values])


class Costs:
    """Counts in the held-out episodes of two policies."""

    def __init__(self, limits: Sequence[SafetyConstraint], *, shielded: bool, trained: Collection[str] = ()) -> None:
        """`trained`: names of constraints whose values training reported."""
        self._limits, self._shielded, self._trained = limits, shielded, trained
        self._keys = [*(one.key for one in limits), *([INTERVENTIONS] if shielded else [])]
        self._made: list[list[Costed]] = []

    def watched(self, world: World, replaced: Replaced) -> World:
        """The world of the next policy."""
        made: list[Costed] = []
        self._made.append(made)

        def opened(members: range) -> VectorEnvironment:
            made.append(Costed(world(members), self._limits, self._keys, replaced))
            return made[-1]

        return opened if self._keys else world

    def compared(self, seed: int) -> list[Cost]:
        """Costs of the first policy, each with the second one's mean. A value that an episode does not report counts 0.

        Raises ConfigError for a constraint's value that neither training nor any of the episodes reported.
        """
        if not self._keys:
            return []
        ours, others = (np.concatenate([one.costs() for one in made]) for made in self._made[:2])
        silent = np.isnan(ours).all(axis=0) & np.isnan(others).all(axis=0)
        for limit, nothing in zip(self._limits, silent, strict=False):
            if nothing and limit.name not in self._trained:
                problem, fix = (
                    "was reported by no episode, so nothing shows that it holds",
                    "report it, where it is 0 too",
                )
                raise errors.ConfigError(f"RewardPolicy constraints {limit.name}", limit.key, problem, fix)
        ours, others = np.nan_to_num(ours), np.nan_to_num(others)
        named = [(one.name, one.maximum) for one in self._limits] + [(INTERVENTIONS, None)] * self._shielded
        costs = []
        for column, (name, maximum) in enumerate(named):
            one = statistics.estimate(ours[:, column], seed)
            assert one is not None  # there was an episode
            interval = {"mean": one.mean, "ci_low": one.ci_low, "ci_high": one.ci_high}
            baseline = float(others[:, column].mean())
            costs.append(Cost(name=name, maximum=maximum, baseline=baseline, episodes=one.episodes, **interval))
        return costs
