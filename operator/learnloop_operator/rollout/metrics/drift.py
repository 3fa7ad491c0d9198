"""`drift`: whether an arm has begun to return less than in its own earlier steps; checks/return_drift.py judges it."""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.source import ExtraSeries
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType
from learnloop_operator.statistics.betting import Counts


class DriftType(MetricType):
    """One comparison of an arm with its own past; it has no number of now, no bounds and no ratios."""

    name = "drift"
    extra_series = frozenset({ExtraSeries.RETURN_DRIFT})
    against_own_past = True

    def noun(self, metric: MetricThreshold) -> str:
        """Return."""
        return "return"

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """None."""
        return None

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """None."""
        return None

    def claims(self, metric: MetricThreshold) -> int:
        """One, whatever its bounds."""
        return 1
