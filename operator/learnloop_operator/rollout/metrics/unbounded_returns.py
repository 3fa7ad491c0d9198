"""`return` without a returnRange: no number of episodes bounds the mean of returns that may be anything.

So the histogram has to agree with the mean. A bound is broken when certainly more than half of the episodes are on its
wrong side. A ratio is broken when the arm's returns certainly are distributed worse than stable's of the same time.
"""

import math
from collections.abc import Sequence

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.source import ExtraSeries
from learnloop_operator.rollout.metrics.confidence import Confidence, level_text, of_evidence
from learnloop_operator.rollout.metrics.returns import Returns
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.interval import mean_interval
from learnloop_operator.statistics.latency import finite_bounds, nearest_bound, prompt, total
from learnloop_operator.statistics.ratio import LEVEL, Bar, Row

HALF = 0.5


class UnboundedReturns(Returns):
    """The mean undiscounted return, on no scale. Of a ratio's quantities the first is the sum, which is not bet on."""

    extra_series = frozenset({ExtraSeries.RETURNS})
    first_bet_on = 1

    def certainly_beyond(
        self, metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float
    ) -> Confidence:
        """Whether certainly more than half of the episodes return less (`low`) or more than `limit`."""
        returns = arm.returns
        bound = nearest_bound(returns, limit, low)
        least = 0.0
        if bound is not None:
            n, running = total(returns), arm.openings.running if arm.openings else 0.0
            wrong = returns[bound] if low else n - returns[bound]
            least = mean_interval(Counts(n + running, wrong), alpha)[0]
        side = "less" if low else "more"
        text = f"certainly {least:.0%} of its episodes return {side}, {HALF:.0%} needed ({level_text(alpha)})"
        return Confidence(least > HALF, text)

    def ratio_basis(self, metric: MetricThreshold, stable: ArmEvidence) -> tuple[tuple[float, ...], float] | None:
        """The bounds of the bucket in which stable's median lies: whatever the returns are worth, a canary that mostly
        gets less than stable has more of its own at or below one of the two."""
        bounds = finite_bounds(stable.returns)
        half = HALF * total(stable.returns)
        above = next((place for place, bound in enumerate(bounds) if stable.returns[bound] > half), len(bounds))
        return tuple(bounds[max(0, above - 1) : above + 1]), 1.0

    def ratio_counts(
        self, metric: MetricThreshold, arm: ArmEvidence, bounds: tuple[float, ...], block: float
    ) -> list[Counts] | None:
        """The sum of the returns; and, for each bound, the episodes that returned more."""
        mean = arm.mean_return
        if mean is None or not math.isfinite(mean):
            return None
        whole = [prompt(arm.returns, bound) for bound in bounds]
        found = [Counts(item.n, item.n - item.total) for item in whole if item is not None]
        return [Counts(arm.episodes, arm.episodes * mean), *found] if len(found) == len(whole) else None

    def ratio_bars(self, metric: MetricThreshold) -> tuple[Bar | None, Bar | None]:
        """That one arm is worse at the same time."""
        return LEVEL if metric.min_ratio is not None else None, LEVEL if metric.max_ratio is not None else None

    def ratio_certainly_beyond(
        self, rows: Sequence[Row], bounds: tuple[float, ...], low: bool, alpha: float
    ) -> Confidence:
        """By the mean of the e-values at the bounds, which is one."""
        logs = [row.low if low else row.high for row in rows[self.first_bet_on :]]
        if not logs:
            return Confidence(False, "the histogram of returns is not there")
        which = "below" if low else "above"
        return of_evidence(_mean(logs), alpha, f"its returns lie {which} those of the same time")


def _mean(logs: Sequence[float]) -> float:
    """Log of the mean of e-values."""
    top = max(logs)
    return top + math.log(sum(math.exp(item - top) for item in logs) / len(logs))
