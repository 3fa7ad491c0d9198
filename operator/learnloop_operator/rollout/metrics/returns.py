"""`return` with a returnRange: the mean return of the ended episodes, which the range bounds."""

from collections.abc import Iterator

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, count, number
from learnloop_operator.rollout.evidence.pod_counters import Counters, finished
from learnloop_operator.rollout.metrics.hard_bound import EpisodeBound, HardBound, episode_bounds
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType, rate
from learnloop_operator.rollout.metrics.return_range import fitted
from learnloop_operator.statistics.alarm import Alarm
from learnloop_operator.statistics.betting import Counts

NOUN = "return"


class ReturnBound(EpisodeBound):
    """min or max of the mean return, on the scale of returnRange."""

    __slots__ = ()
    kind = "return"
    noun = NOUN

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves: the servers sum the returns of no others."""
        n, (lowest, highest) = finished(tally), self.scale
        return self.within_scale(n, (tally.get("gain", 0.0) - tally.get("loss", 0.0) - n * lowest) / (highest - lowest))

    def sentence(self, alarm: Alarm, subject_is: str) -> str:
        """Where every outcome was as bad as can be, the mean may be worse than the range says."""
        n, bad = alarm.recent.n, alarm.recent.total
        if bad != n:
            return super().sentence(alarm, subject_is)
        most = f"at {'most' if self.low else 'least'} {number(self.scale[0] if self.low else self.scale[1])}"
        return f"{NOUN} of {subject_is} {most} over at least {count(round(n))}; bar {self.bar_text}"


class Returns(MetricType):
    """The mean undiscounted return."""

    name = "return"

    def noun(self, metric: MetricThreshold) -> str:
        """Return."""
        return NOUN

    def guardrail_noun(self, guardrail: AnyMetric, measure: Measure | None) -> str:
        """Return."""
        return NOUN

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The mean."""
        return arm.mean_return

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Returns as shares of returnRange. A sum outside it is given as it is; return_range.py says what follows."""
        scale = self.scale(metric)
        if arm.mean_return is None or scale is None:
            return None
        found = rate(arm, (arm.mean_return - scale[0]) / (scale[1] - scale[0]))
        return fitted(found) if found else None

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        """returnRange."""
        where = metric.return_range
        return (where.lowest, where.highest) if where else None

    def in_unit(self, metric: AnyMetric | MetricThreshold, mean: float) -> float:
        """The mean return."""
        where = metric.return_range
        return where.lowest + mean * (where.highest - where.lowest) if where else mean

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """min and max, where returnRange bounds the mean: without it no number of episodes refutes a bound."""
        scale = self.scale(metric)
        return episode_bounds(ReturnBound, metric, scale) if scale else iter(())
