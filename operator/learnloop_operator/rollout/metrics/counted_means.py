"""Means of what the data plane counts of an arm: at most one value for each episode, and not every episode has one."""

from abc import abstractmethod

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType
from learnloop_operator.rollout.metrics.return_range import fitted
from learnloop_operator.statistics.betting import Counts


class CountedMean(MetricType):
    """The mean of the values that an arm's episodes have got, on a scale that bounds them."""

    @abstractmethod
    def counted(self, arm: ArmEvidence) -> Counts | None:
        """Episodes with a value, and the sum of the values in their own unit; None where nobody knows."""

    def spoken(self, metric: MetricThreshold, arm: ArmEvidence) -> int:
        """Episodes with a value."""
        found = self.counted(arm)
        return int(found.n) if found else 0

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The mean."""
        found = self.counted(arm)
        return found.total / found.n if found and found.n > 0.0 else None

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """Values as shares of the scale. A sum outside it is given as it is; return_range.py says what follows."""
        found, scale = self.counted(arm), self.scale(metric)
        if found is None or scale is None or found.n <= 0.0:
            return None
        low, high = scale
        return fitted(Counts(found.n, (found.total - found.n * low) / (high - low)))

    def in_unit(self, metric: AnyMetric | MetricThreshold, mean: float) -> float:
        """The mean value."""
        low, high = self.range_of(metric) or (0.0, 1.0)
        return low + mean * (high - low)

    def scale(self, metric: MetricThreshold) -> tuple[float, float] | None:
        """The range of the values."""
        return self.range_of(metric)

    @abstractmethod
    def range_of(self, metric: AnyMetric | MetricThreshold) -> tuple[float, float] | None:
        """Least and greatest value; None where the API server would have refused the metric."""
