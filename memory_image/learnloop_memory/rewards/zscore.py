"""Running statistics and the z-score (B. P. Welford, Technometrics 4(3), 1962): one pass, no cancellation."""

import math
from dataclasses import dataclass

from learnloop_api.kinds.reward_policy import Normalisation
from learnloop_memory.rewards.components import bounded


@dataclass(frozen=True)
class Running:
    """Count, mean and sum of squared deviations of everything seen so far."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def add(self, value: float) -> "Running":
        """The statistics with one more value."""
        count = self.count + 1
        delta = value - self.mean
        mean = self.mean + delta / count
        return Running(count, mean, self.m2 + delta * (value - mean))

    @property
    def std(self) -> float:
        """Population standard deviation; 0 for fewer than two values."""
        return math.sqrt(max(0.0, self.m2) / self.count) if self.count > 1 else 0.0


def normalise(raw: float, running: Running, rule: Normalisation) -> float:
    """The raw reward on the agent's own scale, within ±clip.

    `running` includes `raw` itself: with n values no score can then exceed (n-1)/√n, so the first few episodes of an
    agent cannot produce extremes. Without any spread yet the score is 0.
    """
    if rule.method == "none":
        return bounded(raw, rule.clip)
    # Rounding leaves a little "spread" behind when every value was the same; that must not be divided by.
    if running.std <= 1e-9 * max(1.0, abs(running.mean)):
        return 0.0
    return bounded((raw - running.mean) / running.std, rule.clip)
