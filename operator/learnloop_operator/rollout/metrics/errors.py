"""`errors`: the share of episodes that ended in an error."""

from collections.abc import Iterator

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.pod_counters import ENDED, Counters, finished
from learnloop_operator.rollout.metrics.hard_bound import EpisodeBound, HardBound, episode_bounds
from learnloop_operator.rollout.metrics.metric_type import Measure, MetricType, rate
from learnloop_operator.statistics.betting import Counts

NOUN = "error rate"


class ErrorBound(EpisodeBound):
    """min or max of the error rate."""

    __slots__ = ()
    kind = "errors"
    noun = NOUN

    def bad(self, tally: Counters) -> Counts:
        """Episodes that ended by themselves."""
        return self.within_scale(finished(tally), tally.get(f"{ENDED}error", 0.0))


class Errors(MetricType):
    """Episodes in error of all that ended by themselves. As an outcome, 1 is an episode without an error."""

    name = "errors"

    def noun(self, metric: MetricThreshold) -> str:
        """Error rate."""
        return NOUN

    def guardrail_noun(self, guardrail: AnyMetric, measure: Measure | None) -> str:
        """Error rate."""
        return NOUN

    def value(self, metric: MetricThreshold, arm: ArmEvidence) -> float | None:
        """The share, 0..1."""
        return arm.error_rate

    def outcomes(self, metric: MetricThreshold, arm: ArmEvidence, measure: Measure) -> Counts | None:
        """0 for an error."""
        return rate(arm, None if arm.error_rate is None else 1.0 - arm.error_rate)

    def in_unit(self, metric: AnyMetric | MetricThreshold, mean: float) -> float:
        """The share of errors."""
        return 1.0 - mean

    def own_direction(self, outcomes: Counts) -> Counts:
        """The errors."""
        return Counts(outcomes.n, outcomes.n - outcomes.total)

    def hard_bounds(self, metric: MetricThreshold) -> Iterator[HardBound]:
        """min and max."""
        return episode_bounds(ErrorBound, metric, (0.0, 1.0))
