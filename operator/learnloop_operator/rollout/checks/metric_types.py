"""Types of metrics: the numbers and outcomes of an arm, and the bounds asked of them.

A new type is one class, an entry in METRIC_TYPES, and its name in `kinds.rollouts.analysis`. The defaults are those of
a mean to which each ended episode contributes once.

Bounds are always valid: look as often as you like, and a good arm is rolled back at most once in 1/alpha. A confidence
sequence of one arm's mean answers for min and max; bets on batches of the same time answer for what is compared with
stable (checks/against_stable.py).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.checks.hard_bound import ENDED, HardBound, episode_bounds, slow_requests
from learnloop_operator.rollout.evidence import ArmEvidence, ExtraSeries, number, ordinal
from learnloop_operator.statistics import canary_against_stable, latency
from learnloop_operator.statistics.e_values import Counts, mean_interval

DEFAULT_QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class Confidence:
    """Whether the bound is certainly broken, and the half sentence of a verdict about it."""

    broken: bool
    text: str


def of_evidence(evidence: float, alpha: float, what: str) -> Confidence:
    """`evidence` is the log e-value of `what`; it suffices when chance alone reaches it once in 1/alpha."""
    return Confidence(evidence >= math.log(1.0 / alpha), f"P({what}) {chance_text(evidence)}, {1.0 - alpha:.6g} needed")


def chance_text(evidence: float) -> str:
    """The chance that a log e-value speaks of, in four digits; a higher one is never rounded to 1."""
    value = canary_against_stable.chance(evidence)
    return "> 0.9999" if value > 0.9999 else f"{value:.4f}".rstrip("0").rstrip(".")


def level_text(alpha: float) -> str:
    """The level of an interval that holds at all looks together."""
    return f"confidence {1.0 - alpha:.6g}"


@dataclass(frozen=True, slots=True)
class Measure:
    """latency: settings fixed before the first outcome is compared, because they follow from stable's earlier ones."""

    bound: float | None = None
    """Requests at least as fast count as good, in seconds."""
    block: float = 1.0
    """So many requests count as one outcome (statistics/latency.py)."""


PLAIN = Measure()


class MetricType(ABC):
    """One value of `spec.analysis.metrics[].type`. Stateless: one object serves all metrics of its type."""

    name: str
    noun: str
    """Name of the measured quantity, for a sentence."""
    extra_series: ExtraSeries | None = None
    """The series that an EvidenceSource reads in addition to the counters of episodes, which it always reads."""
    is_counted: bool = True
    """Whether it is known how many outcomes are behind its number: then its bounds can be always valid."""

    @abstractmethod
    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The arm's number, in the metric's own unit; None where nothing was counted. It may be no finite number."""

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        """The values of the worst and of the best outcome; None: unknown."""
        return (0.0, 1.0)

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """The arm's outcomes and the sum of their values, 0 for the worst and 1 for the best; None: none is known.

        A mean outside the scale is given as it is (see `side`).
        """
        value, scale = self.value(metric, arm), self.scale(metric)
        if value is None or scale is None:
            return None
        start, end = scale
        n = self.weight(arm)
        return fitted(Counts(n, n * ((value - start) / (end - start))))

    def weight(self, arm: ArmEvidence) -> float:
        """Episodes of the arm that contribute to the metric: `minEpisodes` asks for so many."""
        return float(arm.episodes)

    def noun_of(self, metric: MetricThreshold) -> str:
        """The noun with the metric's own settings."""
        return self.noun

    def compared_noun(self, metric: MetricThreshold, measure: Measure) -> str:
        """Name of the quantity that a sequential test compares."""
        return self.noun_of(metric)

    def question_noun(self, metric: MetricThreshold) -> str:
        """Name of the compared quantity in the question of a test."""
        return self.name

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The measure that stable's outcomes so far suggest; None where they do not suffice."""
        return PLAIN

    def in_unit(self, metric: MetricThreshold, mean: float) -> float:
        """A mean of outcomes in 0..1 in the metric's own unit."""
        start, end = self.scale(metric) or (0.0, 1.0)
        return start + mean * (end - start)

    def rollback_checks(self, metric: MetricThreshold) -> int:
        """How many of its tests and bounds may each roll back alone: the error budget is split over them."""
        bounds = (metric.min, metric.max, metric.min_ratio, metric.max_ratio)
        certain = len(bounds) - bounds.count(None) if self.is_counted else 0
        return certain + (metric.test == "sequential")

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """The bounds that the fast lane can ask of the counters of an arm's own pods."""
        return iter(())

    def certainly_beyond(
        self, metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float
    ) -> Confidence:
        """Whether the arm certainly is below `limit` (`low`: it is a minimum) or above it.

        What was seen lies beyond the bound already; the question is whether chance could have done it. Episodes that
        run may all end well: those that ended so far are the short ones, and often these are the failures. So may those
        that ended without an outcome: an override touches the long ones more often.
        """
        counted, (start, end) = self.outcomes(metric, arm, PLAIN), self.scale(metric) or (0.0, 1.0)
        running = arm.openings.running + max(0.0, arm.openings.closed - arm.episodes) if arm.openings else 0.0
        interval = (0.0, 1.0)
        if counted:
            interval = mean_interval(counted.plus(Counts(running, running if low == (end > start) else 0.0)), alpha)
        least, most = sorted(start + part * (end - start) for part in interval)
        certain = f"at most {number(most)}" if low else f"at least {number(least)}"
        return Confidence(most < limit if low else least > limit, f"certainly {certain} ({level_text(alpha)})")


class Success(MetricType):
    """Successful episodes of all that ended by themselves."""

    name, noun = "success", "success rate"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.success_rate

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        return episode_bounds(self.name, self.noun, metric, lambda tally: tally.get(f"{ENDED}success", 0.0))


class Errors(MetricType):
    """Episodes in error of all that ended by themselves. As an outcome, 1 is an episode without an error."""

    name, noun = "errors", "error rate"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.error_rate

    def scale(self, metric: MetricThreshold) -> tuple[float, float]:
        return (1.0, 0.0)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        return episode_bounds(self.name, self.noun, metric, lambda tally: tally.get(f"{ENDED}error", 0.0))


class Returns(MetricType):
    """The mean undiscounted return, within returnRange."""

    name = noun = "return"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.mean_return

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        where = metric.return_range
        return (where.lowest, where.highest) if where else None

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        scale = self.scale(metric)
        if scale is None:
            return iter(())
        return episode_bounds(
            self.name, self.noun, metric, lambda tally: tally.get("gain", 0.0) - tally.get("loss", 0.0), scale
        )


class DataPlaneMean(MetricType):
    """A mean over the episodes of which the data plane knows a value: each counts once, with the mean of its own.

    Rewards are raw, for normalisation moves with the agent's own history and would hide a change that both arms share.
    """

    def __init__(
        self,
        name: str,
        series: ExtraSeries,
        counted: Callable[[ArmEvidence], Counts | None],
        scale: tuple[float, float] | None = None,
    ) -> None:
        self.name = self.noun = name
        self.extra_series = series
        self._counted, self._scale = counted, scale

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        counts = self._counted(arm)
        return counts.mean if counts and counts.n > 0.0 else None

    def weight(self, arm: ArmEvidence) -> float:
        counts = self._counted(arm)
        return counts.n if counts else 0.0

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        where = metric.return_range
        return (where.lowest, where.highest) if where else self._scale


class Latency(MetricType):
    """Requests for an action. As an outcome, 1 is a request no slower than stable's own quantile was."""

    name, noun = "latency", "latency"
    extra_series = ExtraSeries.LATENCY

    def noun_of(self, metric: MetricThreshold) -> str:
        return f"{ordinal(_quantile(metric))} percentile latency"

    def question_noun(self, metric: MetricThreshold) -> str:
        return f"share of requests within stable's {ordinal(_quantile(metric))} percentile"

    def compared_noun(self, metric: MetricThreshold, measure: Measure) -> str:
        """A share, as soon as its bound is fixed."""
        if measure.bound is None:
            return self.noun_of(metric)
        return f"share of requests within {number(measure.bound)} s, stable's {ordinal(_quantile(metric))} percentile,"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return latency.quantile_of(arm.latency, _quantile(metric))

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The bucket of stable's quantile, and the requests of its average episode."""
        if stable.episodes <= 0:
            return None
        bound = latency.bound_of(stable.latency, _quantile(metric))
        return None if bound is None else Measure(bound, max(1.0, latency.total(stable.latency) / stable.episodes))

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Blocks of requests, and the share of prompt ones in them."""
        result = latency.prompt(arm.latency, measure.bound) if measure.bound is not None else None
        return Counts(result.n / measure.block, result.total / measure.block) if result else None

    def certainly_beyond(
        self, metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float
    ) -> Confidence:
        """Whether the arm's quantile certainly is below (`low`) or above `limit` seconds.

        The bound of the histogram is taken on the careful side of the limit.
        """
        quantile, bound = _quantile(metric), latency.nearest_bound(arm.latency, limit, low)
        if bound is None:
            return Confidence(False, f"the histogram has no bound {'up to' if low else 'from'} {number(limit)} s")
        requests = latency.total(arm.latency)
        block = max(1.0, requests / max(1, arm.episodes))
        least, most = mean_interval(Counts(requests / block, arm.latency[bound] / block), alpha)
        if low:
            text = f"certainly {least:.1%} of its requests are that fast, {quantile:.1%} needed ({level_text(alpha)})"
            return Confidence(least > quantile, text)
        slow, allowed = 1.0 - most, 1.0 - quantile
        text = f"certainly {slow:.1%} of its requests are slower, {allowed:.1%} allowed ({level_text(alpha)})"
        return Confidence(slow > allowed, text)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """max; requests cannot be too fast."""
        if metric.max is not None:
            yield slow_requests(metric.max, _quantile(metric), metric.min_episodes)


class PromQL(MetricType):
    """The number of the user's query. The number of events behind it is unknown: it is compared directly."""

    name = "promql"
    noun = "query"
    is_counted = False

    def noun_of(self, metric: MetricThreshold) -> str:
        return metric.name

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return arm.custom.get(metric.name)

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        return None


METRIC_TYPES: Mapping[str, MetricType] = {
    kind.name: kind
    for kind in (
        Success(),
        Errors(),
        Returns(),
        DataPlaneMean("reward", ExtraSeries.REWARDS, lambda arm: arm.rewards),
        # The scale of opinions is that of POST /api/v1/feedback.
        DataPlaneMean("feedback", ExtraSeries.OPINIONS, lambda arm: arm.opinions, (-1.0, 1.0)),
        Latency(),
        PromQL(),
    )
}


def type_of(metric: MetricThreshold) -> MetricType:
    """Looks up the metric's type."""
    return METRIC_TYPES[metric.type]


def max_drop_share(metric: MetricThreshold) -> float | None:
    """maxDrop on the scale 0..1; None where the API server would have refused the metric."""
    scale = type_of(metric).scale(metric)
    width = abs(scale[1] - scale[0]) if scale else 0.0
    drop = metric.max_drop / width if metric.max_drop is not None and width > 0.0 else 0.0
    return drop if 0.0 < drop < 1.0 else None


def _quantile(metric: MetricThreshold) -> float:
    return metric.quantile or DEFAULT_QUANTILE


# Sums of returns on the scale of returnRange, and where they lie when they cannot come from returns in that range.


JITTER = 2.0
"""Episodes by which a sum and its count, which are extrapolated apart, may differ."""
SLACK = 0.01
"""Share of the range by which a mean may lie beyond its ends: sums and counts are extrapolated apart."""


class Side(Enum):
    """The side of the range on which a mean lies."""

    BELOW = "below"
    ABOVE = "above"


def side(counts: Counts) -> Side | None:
    """The side on which the mean of `counts` leaves 0..1; None within the range, near its ends, and without numbers."""
    if not (math.isfinite(counts.n) and math.isfinite(counts.total)) or counts.n <= 0.0:
        return None
    margin = JITTER + SLACK * counts.n
    if counts.total < -margin:
        return Side.BELOW
    return Side.ABOVE if counts.total > counts.n + margin else None


def fitted(counts: Counts) -> Counts:
    """`counts` as outcomes in 0..1 can have given it, where it is that but for rounding; else as it is, which no test
    takes for evidence."""
    if side(counts) is not None or not math.isfinite(counts.total) or not counts.n >= 0.0:
        return counts
    return Counts(counts.n, min(counts.n, max(0.0, counts.total)))
