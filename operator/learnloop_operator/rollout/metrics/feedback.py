"""`feedback`: what people think of the episodes of an arm.

Opinions about one episode are not independent of one another, so an episode counts once, with their mean.
"""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.source import ExtraSeries
from learnloop_operator.rollout.metrics.counted_means import CountedMean
from learnloop_operator.statistics.betting import Counts

WORST, BEST = -1.0, 1.0
"""What an opinion may be (POST /api/v1/feedback)."""


class Feedback(CountedMean):
    """Mean opinion over the rated episodes, -1 to 1."""

    name = "feedback"
    extra_series = frozenset({ExtraSeries.OPINIONS})

    def noun(self, metric: MetricThreshold) -> str:
        """Feedback."""
        return "feedback"

    def counted(self, arm: ArmEvidence) -> Counts | None:
        """Rated episodes."""
        return arm.opinions

    def range_of(self, metric: AnyMetric | MetricThreshold) -> tuple[float, float] | None:
        """-1 to 1."""
        return WORST, BEST
