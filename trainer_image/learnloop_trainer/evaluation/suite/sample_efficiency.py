"""How soon the policy was good: its held-out return at five points of training, and so the area under that curve.

Weights that were meta-learned are adapted first, as they are before export; at the end of training they are already.
"""

from learnloop_trainer.evaluation.suite.fine_tuning import FAMILY, tuned
from learnloop_trainer.evaluation.suite.stage import Finding, NotMeasured, Stage
from learnloop_trainer.evaluation.worlds import nominal


def measure(stage: Stage) -> Finding:
    """Conditions are the milestones; the reference is the policy at the end of training."""
    if not stage.milestones:
        raise NotMeasured("no weights were kept along training: it went on from a checkpoint made before this field")
    conditions, ours, theirs = [], [], []
    for step, kept in sorted(stage.milestones.items()):
        stage.check()
        unadapted = stage.order.spec.algorithm in FAMILY and step < stage.order.spec.total_steps
        weights = tuned(stage, kept, nominal(stage.order)) if unadapted else kept
        mine, other = stage.both(policy=stage.policy_of(weights))
        conditions.append(f"step {step}")
        ours.append(mine)
        theirs.append(other)
    return Finding(conditions, ours, theirs, [stage.play(stage.policy, stage.fresh())], "the policy after training")
