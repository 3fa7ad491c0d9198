"""`reward`: the mean raw reward that the RewardPolicy in force gave the episodes of an arm.

Raw, for normalisation moves with the agent's own history and would hide a change that both arms share. An episode that
broke a safety constraint counts with no more than the reward it was left.
"""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyMetric
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.evidence.source import ExtraSeries
from learnloop_operator.rollout.metrics.counted_means import CountedMean
from learnloop_operator.statistics.betting import Counts


class Reward(CountedMean):
    """Mean of the rewarded episodes, within returnRange."""

    name = "reward"
    extra_series = frozenset({ExtraSeries.REWARDS})

    def noun(self, metric: MetricThreshold) -> str:
        """Reward."""
        return "reward"

    def counted(self, arm: ArmEvidence) -> Counts | None:
        """Rewarded episodes."""
        return arm.rewards

    def range_of(self, metric: AnyMetric | MetricThreshold) -> tuple[float, float] | None:
        """returnRange."""
        where = metric.return_range
        return (where.lowest, where.highest) if where else None
