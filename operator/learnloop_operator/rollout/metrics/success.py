"""`success`: the share of episodes that ended well."""

from collections.abc import Iterator

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.pod_counters import ENDED, Counters, finished
from learnloop_operator.rollout.metrics.hard_bound import EpisodeBound, HardBound, episode_bounds
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType, rate
from learnloop_operator.statistics.betting import Counts

NOUN = "success rate"


class SuccessBound(EpisodeBound):
    """min or max of the success rate."""

    __slots__ = ()
    kind = "success"
    noun = NOUN

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves."""
        return self.within_scale(finished(tally), tally.get(f"{ENDED}success", 0.0))


class Success(MetricType):
    """Successful episodes of all that ended by themselves."""

    name = "success"

    def noun(self, metric: MetricThreshold) -> str:
        """Success rate."""
        return NOUN

    def guardrail_noun(self, guardrail: AnyMetric, measure: Measure | None) -> str:
        """Success rate."""
        return NOUN

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The share, 0..1."""
        return arm.success_rate

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """1 for a success."""
        return rate(arm, arm.success_rate)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """min and max."""
        return episode_bounds(SuccessBound, metric, (0.0, 1.0))
