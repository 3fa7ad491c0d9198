"""Metrics of requests and of queries, and the table of all types by name."""

from collections.abc import Iterator, Sequence

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import ExperimentMetric
from learnloop_operator.rollout.evidence import ArmEvidence, ExtraSeries, number, ordinal
from learnloop_operator.rollout.metrics.episode_metrics import (
    Errors,
    Feedback,
    Returns,
    Reward,
    Success,
    UnboundedReturns,
)
from learnloop_operator.rollout.metrics.hard_bound import (
    REQUESTS,
    Confidence,
    Counters,
    HardBound,
    level_text,
    of_evidence,
    too_slow,
    within,
)
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.betting import Counts, Interval, mean_interval
from learnloop_operator.statistics.latency import bound_of, nearest_bound, prompt, quantile_of, total
from learnloop_operator.statistics.ratio import LEVEL, Bar, Row

DEFAULT_QUANTILE = 0.99
GROSSLY_SLOW_SHARE = 0.1
"""A bound of a latency is grossly broken when so many more of the requests are slower than its quantile allows: one
pause that a few requests met together is not a breach."""


class SlowRequests(HardBound):
    """max of the quantile."""

    __slots__ = ()
    kind = "latency"
    together = True

    def bad(self, tally: Counters) -> Counts | None:
        """Requests, and those that took longer."""
        return too_slow(within(tally, self.limit), tally.get(REQUESTS, 0.0))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """`0.4 of the requests to the canary took longer than 0.1 s; bar at most 0.11`."""
        n, bad = alarm.recent.n, alarm.recent.total
        slow = f"{number(bad / n)} of the requests to {subject_is} took longer than {number(self.limit)} s"
        return f"{slow}; bar at most {number(self.share)}"


class Latency(MetricType):
    """Requests for an action. As an outcome, 1 is a request no slower than stable's own quantile was."""

    name = "latency"
    extra_series = frozenset({ExtraSeries.LATENCY})
    counts_events = True
    of_whole_rollout = True

    def noun(self, metric: MetricThreshold) -> str:
        """`99th percentile latency`."""
        return f"{ordinal(_quantile(metric))} percentile latency"

    def claim_noun(self, metric: MetricThreshold) -> str:
        """A share, as it is tested."""
        return f"share of requests within stable's {ordinal(_quantile(metric))} percentile"

    def compared_noun(self, metric: MetricThreshold, measure: Measure) -> str:
        """A share, as soon as its bound is fixed."""
        if measure.bound is None:
            return self.noun(metric)
        return f"share of requests within {number(measure.bound)} s, stable's {ordinal(_quantile(metric))} percentile,"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        return quantile_of(arm.latency, _quantile(metric))

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The bucket of stable's quantile, and the requests of its average episode."""
        if stable.episodes <= 0:
            return None
        bound = bound_of(stable.latency, _quantile(metric))
        return None if bound is None else Measure(bound, max(1.0, total(stable.latency) / stable.episodes))

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Blocks of requests, and the share of prompt ones in them."""
        result = prompt(arm.latency, measure.bound) if measure.bound is not None else None
        return Counts(result.n / measure.block, result.total / measure.block) if result else None

    def certainly_beyond(
        self, metric: MetricThreshold, arm: ArmEvidence, limit: float, low: bool, alpha: float
    ) -> Confidence:
        """Whether the arm's quantile certainly is below (`low`) or above `limit` seconds.

        The bound of the histogram is taken on the careful side of the limit.
        """
        quantile, bound = _quantile(metric), nearest_bound(arm.latency, limit, low)
        if bound is None:
            return Confidence(False, f"the histogram has no bound {'up to' if low else 'from'} {number(limit)} s")
        least, most = _share_within(arm, bound, alpha)
        if low:
            text = f"certainly {least:.1%} of its requests are that fast, {quantile:.1%} needed ({level_text(alpha)})"
            return Confidence(least > quantile, text)
        slow, allowed = 1.0 - most, 1.0 - quantile
        text = f"certainly {slow:.1%} of its requests are slower, {allowed:.1%} allowed ({level_text(alpha)})"
        return Confidence(slow > allowed, text)

    def ratio_bars(self, metric: MetricThreshold) -> tuple[Bar | None, Bar | None]:
        """A latency above its ratio is a share of prompt requests below stable's."""
        return LEVEL if metric.max_ratio is not None else None, LEVEL if metric.min_ratio is not None else None

    def ratio_certainly_beyond(
        self, rows: Sequence[Row], bounds: tuple[float, ...], low: bool, alpha: float
    ) -> Confidence:
        """By the share of requests slower than stable's quantile at the same time."""
        evidence, side = (rows[0].high, "fewer") if low else (rows[0].low, "more")
        bound = number(bounds[0]) if bounds else "?"
        return of_evidence(evidence, alpha, f"{side} of its requests are slower than {bound} s at the same time")

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """max; requests cannot be too fast."""
        if metric.max is not None:
            share = 1.0 - _quantile(metric) + GROSSLY_SLOW_SHARE
            yield SlowRequests(metric.max, False, share, metric.min_episodes)


def _quantile(metric: MetricThreshold) -> float:
    return metric.quantile or DEFAULT_QUANTILE


def _share_within(arm: ArmEvidence, bound: float, alpha: float) -> Interval:
    """The share of the arm's requests that take no longer than `bound`."""
    requests = total(arm.latency)
    block = max(1.0, requests / max(1, arm.episodes))
    return mean_interval(Counts(requests / block, arm.latency[bound] / block), alpha)


# `promql`: a number of the user's own; with test: sequential, good events of all events.


class PromQL(MetricType):
    """The user's query. The number of events behind it is unknown unless totalQuery counts them."""

    name = "promql"
    counts_events = True

    def noun(self, metric: MetricThreshold) -> str:
        return metric.name

    def queries(self, metric: MetricThreshold, namespace: str, revision: str, seconds: int) -> tuple[str, ...]:
        """The user's query, or for a sequential test that of the good events and that of all of them."""
        wanted = (metric.query, metric.total_query) if metric.test == "sequential" else (metric.query,)
        return tuple(_filled_in(query or "", namespace, revision, seconds) for query in wanted)

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The query's number, or the share of good events."""
        return arm.custom.get(metric.name)

    def is_counted(self, metric: MetricThreshold) -> bool:
        """True where totalQuery counts the events."""
        return metric.test == "sequential"

    def measure(self, metric: MetricThreshold, stable: ArmEvidence) -> Measure | None:
        """The events of stable's average episode."""
        recorded = stable.events.get(metric.name)
        if stable.episodes <= 0 or recorded is None or not recorded.n > 0.0:
            return None
        return Measure(None, max(1.0, recorded.n / stable.episodes))

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Blocks of events, and the share of good ones in them."""
        result = arm.events.get(metric.name)
        return Counts(result.n / measure.block, result.total / measure.block) if result else None

    def _block_of(self, metric: MetricThreshold, arm: ArmEvidence) -> Measure:
        """The events of the arm's own average episode count as one."""
        events = arm.events.get(metric.name)
        return Measure(None, max(1.0, events.n / max(1, arm.episodes)) if events else 1.0)


def _filled_in(query: str, namespace: str, revision: str, seconds: int) -> str:
    """The query with $revision, $namespace and $window filled in."""
    return query.replace("$revision", revision).replace("$namespace", namespace).replace("$window", f"{seconds}s")


# All types of metrics by the name that a specification gives them. Each is registered here, once.


METRIC_TYPES: dict[str, MetricType] = {
    kind.name: kind for kind in (Success(), Errors(), Returns(), Reward(), Feedback(), Latency(), PromQL())
}
_UNBOUNDED_RETURNS = UnboundedReturns()


def type_of(metric: MetricThreshold | ExperimentMetric) -> MetricType:
    """Looks up the metric's type. Returns without a range have a type of their own."""
    kind = METRIC_TYPES[metric.type]
    return _UNBOUNDED_RETURNS if metric.return_range is None and type(kind) is Returns else kind
