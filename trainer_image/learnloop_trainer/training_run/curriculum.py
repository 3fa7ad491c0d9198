"""From easy to hard: which level is played, decided from the share of successful episodes, or from their returns.

Bengio, Louradour, Collobert & Weston (2009), "Curriculum learning". The levels and the shares that lead on are the
environment's (the specification's 70, 60, 50 and 40 %, or 80 % for trading and supply chains); the evidence is the
newest `window` episodes, after at least `minEpisodes` at the level. With `returns` their mean return decides instead,
by thresholds that the job gives for each level (the specification's completion criterion average_reward). All ranks
decide from the same sums, so all play the same level.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training import environment_conditions
from learnloop_environments import errors, simulation


class CurriculumProgress:
    """The present level and the evidence for the next."""

    def __init__(
        self, levels: Sequence[simulation.Level], start: int, settings: environment_conditions.Curriculum
    ) -> None:
        """Begin at level number `start`; raises ConfigError when there is nothing to climb."""
        names = [level.name for level in levels]
        if len(levels) < 2:
            fix = "leave it out, or choose an environment with levels, e.g. examples/worlds/motion.py"
            raise errors.ConfigError("spec.curriculum", "(set)", "needs an environment with levels", fix)
        if settings.until is not None and settings.until not in names:
            raise errors.ConfigError(
                "spec.curriculum.until", settings.until, "is not a level", f"choose one of {', '.join(names)}"
            )
        self.last = len(levels) - 1 if settings.until is None else names.index(settings.until)
        if start > self.last:
            problem = f"comes before the first level {names[start]}"
            raise errors.ConfigError("spec.curriculum.until", names[self.last], problem, "choose a harder one")
        self._levels, self._settings = levels, settings
        self.level, self.episodes = start, 0
        self.evidence = ""  # of the newest move, in words
        self._recent: deque[bool] = deque(maxlen=settings.window)
        self._returns: deque[float] = deque(maxlen=settings.window)

    @property
    def name(self) -> str:
        return self._levels[self.level].name

    @property
    def successes(self) -> float:
        """Share of the newest episodes; 0 before the first."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    def note(self, episodes: int, successes: int, total: float = 0.0) -> int:
        """Take in what ended since the last call, on all ranks together; returns the level's change: -1, 0 or 1.

        `total`: the sum of the episodes' returns.
        """
        self.episodes += episodes
        # Their order is unknown: spread the successes evenly, so that the window cuts no lump of them off.
        edges = [index * successes // max(1, episodes) for index in range(episodes + 1)]
        self._recent.extend(after > before for before, after in pairwise(edges))
        self._returns.extend([total / max(1, episodes)] * min(episodes, self._settings.window))
        if self.episodes < self._settings.min_episodes:
            return 0
        return self._by_successes() if self._settings.returns is None else self._by_returns(self._settings.returns)

    def _by_successes(self) -> int:
        settings, share = self._settings, self.successes
        own, reason = self._levels[self.level].promote_at, f"{share:.0%} of episodes succeeded"
        if share >= (own if settings.promote_at is None else settings.promote_at) and self.level < self.last:
            return self._move(1, reason)
        if share < settings.demote_below and self.level > 0:
            return self._move(-1, reason)
        return 0

    def _by_returns(self, thresholds: Sequence[environment_conditions.ReturnThreshold]) -> int:
        if self.level >= len(thresholds):
            return 0
        threshold, mean = thresholds[self.level], sum(self._returns) / len(self._returns)
        reason = f"the mean return was {mean:.1f}"
        if mean >= threshold.promote_at and self.level < self.last:
            return self._move(1, reason)
        if threshold.demote_below is not None and mean < threshold.demote_below and self.level > 0:
            return self._move(-1, reason)
        return 0

    def _move(self, by: int, evidence: str) -> int:
        self.level, self.episodes, self.evidence = self.level + by, 0, evidence
        self._recent.clear()
        self._returns.clear()
        return by

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {
            "level": np.asarray([self.level, self.episodes]),
            "recent": np.asarray(list(self._recent), dtype=np.bool_),
            "returns": np.asarray(list(self._returns), dtype=np.float64),
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take up a saved state; raises KeyError or ValueError when it does not fit."""
        self.level, self.episodes = (int(value) for value in state["level"])
        if not 0 <= self.level <= self.last:
            raise ValueError(f"level {self.level} does not exist")
        self._recent = deque((bool(value) for value in state["recent"]), maxlen=self._settings.window)
        self._returns = deque((float(value) for value in state["returns"]), maxlen=self._settings.window)
