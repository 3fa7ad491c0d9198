"""Puts raw rewards on the agent's own scale: running statistics, normalisation, bounds and confidence."""

import math
from dataclasses import dataclass

from learnloop_api.kinds.reward_policy import Normalisation, RewardPolicySpec
from learnloop_common.reward_rules.components import Worth, bounded
from learnloop_common.reward_rules.step_rewards import limits


@dataclass(frozen=True)
class Running:
    """Everything seen so far, in one pass (B. P. Welford, Technometrics 4(3), 1962).

    Attributes:
        count: how many values.
        mean: their mean.
        m2: their sum of squared deviations.
        low: the least, None before the first.
        high: the largest.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    low: float | None = None
    high: float | None = None

    def add(self, value: float) -> "Running":
        """The statistics with one more value."""
        count = self.count + 1
        delta = value - self.mean
        mean = self.mean + delta / count
        return Running(
            count,
            mean,
            self.m2 + delta * (value - mean),
            value if self.low is None else min(self.low, value),
            value if self.high is None else max(self.high, value),
        )

    @property
    def std(self) -> float:
        """Population standard deviation; 0 for fewer than two values."""
        return math.sqrt(max(0.0, self.m2) / self.count) if self.count > 1 else 0.0


def normalise(raw: float, running: Running, rule: Normalisation) -> float:
    """The raw reward on the agent's own scale, within ±clip.

    `running` includes `raw` itself: with n values no z-score can then exceed (n-1)/√n, so the first few episodes of an
    agent cannot produce extremes. Without any spread yet, zscore and minmax give 0.
    """
    match rule.method:
        case "none":
            return bounded(raw, rule.clip)
        case "minmax":
            if running.low is None or running.high is None or running.high <= running.low:
                return 0.0
            return bounded((raw - running.low) / (running.high - running.low), rule.clip)
        case _:
            # Rounding leaves a little "spread" behind when every value was the same; that must not be divided by.
            if running.std <= 1e-9 * max(1.0, abs(running.mean)):
                return 0.0
            return bounded((raw - running.mean) / running.std, rule.clip)


def settle(spec: RewardPolicySpec, worth: Worth, running: Running) -> tuple[float, Running]:
    """The reward to store, and the statistics that include it.

    Constraints come after the bounds: nothing an episode achieved makes up for one it broke.
    """
    running = running.add(worth.raw)
    return min([scaled(spec, worth.raw, running), *limits(spec, worth)]), running


def scaled(spec: RewardPolicySpec, raw: float, running: Running) -> float:
    """A raw reward as stored ones are: on the agent's scale, within the bounds."""
    reward = normalise(raw, running, spec.normalisation)
    if spec.bounds is not None:
        reward = min(spec.bounds.maximum, max(spec.bounds.minimum, reward))
    return reward


def confidence(spec: RewardPolicySpec, worth: Worth, running: Running) -> float:
    """How far a reward can be trusted, 0 to 1: share of the weights that were measured × how settled the scale is.

    A scale learned from n episodes is off by about 1/√n standard deviations; without normalisation there is none.
    """
    settled = 1.0 if spec.normalisation.method == "none" else 1.0 - 1.0 / math.sqrt(max(1, running.count))
    return worth.coverage * settled
