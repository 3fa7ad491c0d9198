"""The interface of metric types: all that a rollout asks about `success`, `latency` and the others.

A new type is one class, an entry in all_types.py, and its name in `kinds.rollouts.analysis`. The
defaults here are those of a mean of outcomes in 0..1 of which each ended episode gives one.

Bounds are always valid: look as often as you like, and a good arm is rolled back at most once in 1/alpha. The answer
counts outcomes, so it is as sure as their number allows. A confidence sequence of one arm's mean answers for min and
max (sequential/interval). Bets on batches that both arms had at the same time answer for ratios
(checks/paired_outcomes).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import ExperimentMetric
from learnloop_operator.rollout.evidence import ArmEvidence, ExtraSeries, number
from learnloop_operator.rollout.metrics.hard_bound import Confidence, HardBound, level_text, of_evidence
from learnloop_operator.statistics.betting import Counts, mean_interval
from learnloop_operator.statistics.ratio import Bar, Row


@dataclass(frozen=True, slots=True)
class Measure:
    """Settings fixed before the first outcome is compared, because they follow from stable's earlier ones."""

    bound: float | None = None
    """latency: requests at least as fast count as good, in seconds."""
    block: float = 1.0
    """So many events count as one outcome (all_types.py says why)."""


PLAIN = Measure()


class MetricType(ABC):
    """One value of `spec.analysis.metrics[].type`. Stateless: one object serves all metrics of its type."""

    name: ClassVar[str]
    """As the specification writes it."""
    extra_series: ClassVar[frozenset[ExtraSeries]] = frozenset()
    """What an EvidenceSource has to read in addition to the counters of episodes, which it always reads."""
    counts_events: ClassVar[bool] = False
    """Whether outcomes are events, of which an average episode has many: they are counted in blocks."""
    of_whole_rollout: ClassVar[bool] = False
    """Whether its number is one of the whole rollout, which no batch of the same time has."""
    first_bet_on: ClassVar[int] = 0
    """Index of the first quantity of a ratio that is bet on; those before it are only remembered."""

    @abstractmethod
    def noun(self, metric: MetricThreshold) -> str:
        """Name of the measured quantity, for a sentence."""

    @abstractmethod
    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The arm's number, in the metric's own unit; None where nothing was counted. It may be no finite number."""

    @abstractmethod
    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """The arm's outcomes and the sum of their values, 0 for the worst and 1 for the best; None: none is known."""

    def spoken(self, metric: MetricThreshold, arm: ArmEvidence) -> int:
        """Episodes of the arm that have a say in this metric: `minEpisodes` asks for so many."""
        return arm.episodes

    def queries(self, metric: MetricThreshold, namespace: str, revision: str, seconds: int) -> tuple[str, ...]:
        """PromQL of its own about one arm over the last `seconds`, each of one number: the value; or the good events,
        and all of them. The answers are in ArmEvidence.custom and .events, by the metric's name."""
        return ()

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The measure that stable's outcomes so far suggest; None where they do not suffice."""
        return PLAIN

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        """Values of outcomes 0 and 1, in the metric's own direction; None: its values are unbounded."""
        return (0.0, 1.0)

    def in_unit(self, metric: ExperimentMetric | MetricThreshold, mean: float) -> float:
        """A mean of outcomes in 0..1 in the metric's own unit."""
        return mean

    def own_direction(self, outcomes: Counts) -> Counts:
        """Outcomes, counted as the metric's own number counts them."""
        return outcomes

    def is_counted(self, metric: MetricThreshold) -> bool:
        """Whether it is known how many outcomes are behind its number: then its bounds can be always valid."""
        return True

    def claims(self, metric: MetricThreshold) -> int:
        """How many claims it makes of which one suffices for a rollback: the error budget is split over them."""
        bounds = (metric.min, metric.max, metric.min_ratio, metric.max_ratio)
        certain = len(bounds) - bounds.count(None) if self.is_counted(metric) else 0
        return certain + (metric.test == "sequential")

    def claim_noun(self, metric: MetricThreshold) -> str:
        """Name of the compared quantity in the claim of a sequential test."""
        return self.name

    def compared_noun(self, metric: MetricThreshold, measure: Measure) -> str:
        """Name of the compared quantity of a sequential test, for a sentence."""
        return self.noun(metric)

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
        result = self.outcomes(metric, arm, self._block_of(metric, arm))
        running = arm.openings.running + max(0.0, arm.openings.closed - arm.episodes) if arm.openings else 0.0
        counted, (start, end) = self.own_direction(result) if result else None, self.scale(metric) or (0.0, 1.0)
        counted = counted.plus(Counts(running, running if low else 0.0)) if counted else None
        least, most = (
            start + part * (end - start) for part in (mean_interval(counted, alpha) if counted else (0.0, 1.0))
        )
        broken = most < limit if low else least > limit
        certain = f"at most {number(most)}" if low else f"at least {number(least)}"
        return Confidence(broken, f"certainly {certain} ({level_text(alpha)})")

    def _block_of(self, metric: MetricThreshold, arm: ArmEvidence) -> Measure:
        """The measure of one arm alone."""
        return PLAIN

    def ratio_basis(self, metric: MetricThreshold, stable: ArmEvidence) -> tuple[tuple[float, ...], float] | None:
        """Bounds and block of a ratio's comparison, fixed by what stable has shown; None where it does not suffice."""
        fixed = self.measure(metric, stable)
        if fixed is None:
            return None
        return () if fixed.bound is None else (fixed.bound,), fixed.block

    def ratio_counts(
        self, metric: MetricThreshold, arm: ArmEvidence, bounds: tuple[float, ...], block: float
    ) -> list[Counts] | None:
        """Counts of each quantity that a ratio compares; None where a number is missing or invalid."""
        counted = self.outcomes(metric, arm, Measure(bounds[0] if bounds else None, block))
        return None if counted is None or not counted.possible else [self.own_direction(counted)]

    def ratio_bars(self, metric: MetricThreshold) -> tuple[Bar | None, Bar | None]:
        """The bars below and above."""
        low, high, (start, end) = metric.min_ratio, metric.max_ratio, self.scale(metric) or (0.0, 1.0)
        return Bar(low, start, end) if low is not None else None, Bar(high, start, end) if high is not None else None

    def ratio_certainly_beyond(
        self, rows: Sequence[Row], bounds: tuple[float, ...], low: bool, alpha: float
    ) -> Confidence:
        """Whether the arm certainly is below its ratio to stable of the same time (`low`: it is a minimum) or above."""
        evidence, which = (rows[0].low, "below") if low else (rows[0].high, "above")
        return of_evidence(evidence, alpha, f"{which} the bar at the same time")


def rate(arm: ArmEvidence, mean: float | None) -> Counts | None:
    """Episodes and the sum of their values, by their mean."""
    n = float(arm.episodes)
    return None if mean is None else Counts(n, n * mean)


def max_drop_share(metric: MetricThreshold, scale: tuple[float, float] | None) -> float | None:
    """maxDrop on the scale 0..1; None where the API server would have refused the metric."""
    width = scale[1] - scale[0] if scale else 0.0
    drop = metric.max_drop / width if metric.max_drop is not None and width > 0.0 else 0.0
    return drop if 0.0 < drop < 1.0 else None


# Sums of returns on the scale of returnRange, and where they lie when they cannot come from returns in that range.


JITTER = 2.0
"""Episodes by which a sum and its count, which are extrapolated apart, may differ."""
SLACK = 0.01
"""Share of the range by which a mean may lie beyond its ends: sums and counts are extrapolated apart."""


class Side(Enum):
    """The side of the range on which a mean lies."""

    BELOW = "below"
    ABOVE = "above"


def side(seen: Counts) -> Side | None:
    """The side on which the mean of `seen` leaves 0..1; None within the range, near its ends, and without numbers."""
    if not (math.isfinite(seen.n) and math.isfinite(seen.total)) or seen.n <= 0.0:
        return None
    margin = JITTER + SLACK * seen.n
    if seen.total < -margin:
        return Side.BELOW
    return Side.ABOVE if seen.total > seen.n + margin else None


def fitted(seen: Counts) -> Counts:
    """`seen` as outcomes in 0..1 can have given it, where it is that but for rounding; else as it is, which no test
    takes for evidence."""
    if side(seen) is not None or not math.isfinite(seen.total) or not seen.n >= 0.0:
        return seen
    return Counts(seen.n, min(seen.n, max(0.0, seen.total)))


# Means of what the data plane counts of an arm: at most one value for each episode, and not every episode has one.


class CountedMean(MetricType):
    """The mean of the values that an arm's episodes have got, on a scale that bounds them."""

    @abstractmethod
    def counted(self, arm: ArmEvidence) -> Counts | None:
        """Episodes with a value, and the sum of the values in their own unit; None where unknown."""

    def spoken(self, metric: MetricThreshold, arm: ArmEvidence) -> int:
        result = self.counted(arm)
        return int(result.n) if result else 0

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        result = self.counted(arm)
        return result.total / result.n if result and result.n > 0.0 else None

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Values as shares of the scale. A sum outside it is given as it is; metric_type.py says what follows."""
        result, scale = self.counted(arm), self.scale(metric)
        if result is None or scale is None or result.n <= 0.0:
            return None
        low, high = scale
        return fitted(Counts(result.n, (result.total - result.n * low) / (high - low)))

    def in_unit(self, metric: ExperimentMetric | MetricThreshold, mean: float) -> float:
        low, high = self.range_of(metric) or (0.0, 1.0)
        return low + mean * (high - low)

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        return self.range_of(metric)

    @abstractmethod
    def range_of(self, metric: ExperimentMetric | MetricThreshold) -> tuple[float, float] | None:
        """Least and greatest value; None where the API server would have refused the metric."""
