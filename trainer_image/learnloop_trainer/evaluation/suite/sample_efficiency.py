"""How soon the policy was good: its held-out return at five points of training, and so the area under that curve.

Nobody knows how the serving policy came about, so it is compared with ours after training, each at its best.

Weights that were meta-learned are adapted first, as they are before export; at the end of training they are already.
"""

from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.evaluation.held_out_episodes import nominal
from learnloop_trainer.evaluation.suite.fine_tuning import tuned
from learnloop_trainer.evaluation.suite.stage import Finding, NotMeasured, Stage


def measure(stage: Stage) -> Finding:
    """Conditions are the milestones; the reference is the policy at the end of training."""
    if not stage.milestones:
        raise NotMeasured("no weights were kept along training: it went on from a checkpoint made before this field")
    conditions, ours, theirs, alike = [], [], [], []
    for step, kept in sorted(stage.milestones.items()):
        stage.check()
        unadapted = traits_of(stage.order.spec.algorithm).meta_learned and step < stage.order.spec.total_steps
        weights = tuned(stage, kept, nominal(stage.order)) if unadapted else kept
        policy, first = stage.policy_of(weights), stage.fresh()
        conditions.append(f"step {step}")
        ours.append(stage.play(policy, first))
        alike.append(stage.play(stage.policy, first))
        theirs.append(stage.play(stage.baseline, first))
    return Finding(conditions, ours, theirs, alike, "the policy after training", alike)
