"""What the evidence says of one arm of an experiment: its outcomes, and whether it breaks a hard bar."""

from learnloop_api.kinds.experiment import ExperimentMetric
from learnloop_operator.core.experiment.state import Player
from learnloop_operator.core.rollout.evidence import ArmEvidence, Verdict, check
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.sequential.betting import NONE, Counts


def counts(snapshot: Snapshot, metric: ExperimentMetric, player: Player) -> Counts | None:
    """Finished episodes and the sum of their outcomes, 0 for the worst and 1 for the best; None for an arm that gets
    no episodes, or of which nothing is known."""
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None or (player.standing != "playing" and player.name != "stable"):
        return None
    if arm.episodes <= 0:
        return NONE
    mean = _mean(metric, arm)
    return None if mean is None else Counts(float(arm.episodes), arm.episodes * min(1.0, max(0.0, mean)))


def breach(snapshot: Snapshot, player: Player) -> str:
    """Which hard bounds of spec.analysis the arm breaks; "" for none.

    Ratios are left to the comparison of the arms, which does not fall for the noise of the first episodes.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    said = []
    for metric in snapshot.spec.analysis.metrics:
        if metric.dry_run or metric.type == "drift" or (metric.min is None and metric.max is None):
            continue
        hard = metric.model_copy(update={"min_ratio": None, "max_ratio": None})
        found = check(hard, arm, None, subject_is=player.name)
        if found.verdict is Verdict.BREACH:
            said.append(found.sentence)
    return "; ".join(said)


def _mean(metric: ExperimentMetric, arm: ArmEvidence) -> float | None:
    if metric.type == "success":
        return arm.success_rate
    if metric.type == "errors":
        return None if arm.error_rate is None else 1.0 - arm.error_rate
    where = metric.return_range
    if arm.mean_return is None or where is None:
        return None
    return (arm.mean_return - where.lowest) / (where.highest - where.lowest)
