"""Metrics of which each ended episode gives one outcome: success, errors, returns, reward and feedback."""

import math
from collections.abc import Iterator, Sequence

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import ExperimentMetric
from learnloop_operator.rollout.evidence import ArmEvidence, ExtraSeries, count, number
from learnloop_operator.rollout.metrics.hard_bound import (
    ENDED,
    Confidence,
    Counters,
    EpisodeBound,
    HardBound,
    episode_bounds,
    finished,
    level_text,
    of_evidence,
)
from learnloop_operator.rollout.metrics.metric_type import CountedMean, Measure, MetricType, fitted, rate
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.betting import Counts, mean_interval
from learnloop_operator.statistics.latency import finite_bounds, nearest_bound, prompt, total
from learnloop_operator.statistics.ratio import LEVEL, Bar, Row

SUCCESS_RATE = "success rate"


class SuccessBound(EpisodeBound):
    """min or max of the success rate."""

    __slots__ = ()
    kind = "success"
    noun = SUCCESS_RATE

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves."""
        return self.within_scale(finished(tally), tally.get(f"{ENDED}success", 0.0))


class Success(MetricType):
    """Successful episodes of all that ended by themselves."""

    name = "success"

    def noun(self, metric: MetricThreshold) -> str:
        return SUCCESS_RATE

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.success_rate

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """1 for a success."""
        return rate(arm, arm.success_rate)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        return episode_bounds(SuccessBound, metric, (0.0, 1.0))


# `errors`: the share of episodes that ended in an error.


ERROR_RATE = "error rate"


class ErrorBound(EpisodeBound):
    """min or max of the error rate."""

    __slots__ = ()
    kind = "errors"
    noun = ERROR_RATE

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves."""
        return self.within_scale(finished(tally), tally.get(f"{ENDED}error", 0.0))


class Errors(MetricType):
    """Episodes in error of all that ended by themselves. As an outcome, 1 is an episode without an error."""

    name = "errors"

    def noun(self, metric: MetricThreshold) -> str:
        return ERROR_RATE

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.error_rate

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """0 for an error."""
        return rate(arm, None if arm.error_rate is None else 1.0 - arm.error_rate)

    def in_unit(self, metric: ExperimentMetric | MetricThreshold, mean: float) -> float:
        return 1.0 - mean

    def own_direction(self, outcomes: Counts) -> Counts:
        return Counts(outcomes.n, outcomes.n - outcomes.total)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        return episode_bounds(ErrorBound, metric, (0.0, 1.0))


# `return` with a returnRange: the mean return of the ended episodes, which the range bounds.


RETURN = "return"


class ReturnBound(EpisodeBound):
    """min or max of the mean return, on the scale of returnRange."""

    __slots__ = ()
    kind = "return"
    noun = RETURN

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves: the servers sum the returns of no others."""
        n, (lowest, highest) = finished(tally), self.scale
        return self.within_scale(n, (tally.get("gain", 0.0) - tally.get("loss", 0.0) - n * lowest) / (highest - lowest))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """Says `at most` when every outcome was as bad as can be: the mean may be below the range."""
        n, bad = alarm.recent.n, alarm.recent.total
        if bad != n:
            return super().sentence(alarm, subject_is)
        most = f"at {'most' if self.low else 'least'} {number(self.scale[0] if self.low else self.scale[1])}"
        return f"{RETURN} of {subject_is} {most} over at least {count(round(n))}; bar {self.bar_text}"


class Returns(MetricType):
    """The mean undiscounted return."""

    name = "return"

    def noun(self, metric: MetricThreshold) -> str:
        return RETURN

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.mean_return

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Returns as shares of returnRange. A sum outside it is given as it is (see hard_bound.py)."""
        scale = self.scale(metric)
        if arm.mean_return is None or scale is None:
            return None
        result = rate(arm, (arm.mean_return - scale[0]) / (scale[1] - scale[0]))
        return fitted(result) if result else None

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        where = metric.return_range
        return (where.lowest, where.highest) if where else None

    def in_unit(self, metric: ExperimentMetric | MetricThreshold, mean: float) -> float:
        where = metric.return_range
        return where.lowest + mean * (where.highest - where.lowest) if where else mean

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """min and max, where returnRange bounds the mean: without it no number of episodes refutes a bound."""
        scale = self.scale(metric)
        return episode_bounds(ReturnBound, metric, scale) if scale else iter(())


# `return` without a returnRange: no number of episodes bounds the mean of returns that may be anything.
#
# So the histogram has to agree with the mean. A bound is broken when certainly more than half of the episodes are on
# its wrong side. A ratio is broken when the arm's returns certainly are distributed worse than stable's of the same
# time.


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
        result = [Counts(item.n, item.n - item.total) for item in whole if item is not None]
        return [Counts(arm.episodes, arm.episodes * mean), *result] if len(result) == len(whole) else None

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


# `reward`: the mean raw reward that the RewardPolicy in force gave the episodes of an arm.
#
# Raw, for normalisation moves with the agent's own history and would hide a change that both arms share. An episode
# that broke a safety constraint counts with no more than the reward it was left.


class Reward(CountedMean):
    """Mean of the rewarded episodes, within returnRange."""

    name = "reward"
    extra_series = frozenset({ExtraSeries.REWARDS})

    def noun(self, metric: MetricThreshold) -> str:
        return "reward"

    def counted(self, arm: ArmEvidence) -> Counts | None:
        return arm.rewards

    def range_of(self, metric: ExperimentMetric | MetricThreshold) -> tuple[float, float] | None:
        where = metric.return_range
        return (where.lowest, where.highest) if where else None


# `feedback`: what people think of the episodes of an arm.
#
# Opinions about one episode are not independent of one another, so an episode counts once, with their mean.


WORST, BEST = -1.0, 1.0
"""What an opinion may be (POST /api/v1/feedback)."""


class Feedback(CountedMean):
    """Mean opinion over the rated episodes, -1 to 1."""

    name = "feedback"
    extra_series = frozenset({ExtraSeries.OPINIONS})

    def noun(self, metric: MetricThreshold) -> str:
        return "feedback"

    def counted(self, arm: ArmEvidence) -> Counts | None:
        return arm.opinions

    def range_of(self, metric: ExperimentMetric | MetricThreshold) -> tuple[float, float] | None:
        return WORST, BEST
