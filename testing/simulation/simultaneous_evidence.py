"""Two arms' evidence as a ratio remembers it, for checks that are asked without a rollout around them."""

from collections.abc import Mapping
from dataclasses import replace

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.rollout.checks.against_stable import Comparison, compared
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence

LOOKS = 8


def at_the_same_time(
    metric: MetricThreshold, canary: ArmEvidence | None, stable: ArmEvidence | None
) -> Comparison | None:
    """A ratio's comparison after both arms have played their episodes in equal parts: once before the first
    look, and then at each of LOOKS more."""
    analysis = Analysis(metrics=[metric])
    comparisons: tuple[Comparison, ...] = ()
    for times in range(1, LOOKS + 2):
        both = {"canary": canary, "stable": stable}
        arms = {name: _times(arm, times) for name, arm in both.items() if arm is not None}
        comparisons = compared(analysis, comparisons, Evidence(arms), "canary", "stable", concurrent=True)
    return comparisons[0] if comparisons else None


def _times(arm: ArmEvidence, times: int) -> ArmEvidence:
    def more(histogram: Mapping[float, float]) -> dict[float, float]:
        return {bound: times * n for bound, n in histogram.items()}

    return replace(arm, episodes=times * arm.episodes, latency=more(arm.latency))
