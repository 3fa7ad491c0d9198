"""What a little fine-tuning in changed conditions brings.

The serving policy is fine-tuned alike, from its own weights. One that has none to go on from (uniform actions, another
algorithm's network) is compared with ours before fine-tuning.
"""

from learnloop_environments import Conditions
from learnloop_trainer.evaluation.held_out_episodes import nominal, sample
from learnloop_trainer.evaluation.play import Policy
from learnloop_trainer.evaluation.suite.disturbances import Sticky
from learnloop_trainer.evaluation.suite.fine_tuning import effort, tuned
from learnloop_trainer.evaluation.suite.robustness import physics, varied
from learnloop_trainer.evaluation.suite.stage import Disturb, Finding, Stage
from learnloop_trainer.progress_reporter import say


def changed(stage: Stage) -> tuple[str, Conditions, Disturb | None]:
    """The next level up (at the hardest the one below), else other physics, else sticky actions."""
    usual, share = nominal(stage.order).level, stage.suite.perturbation
    levels = [level.name for level in getattr(sample(stage.order), "LEVELS", ())]
    if len(levels) > 1:
        here = levels.index(usual) if usual else 0
        other = levels[here + 1] if here + 1 < len(levels) else levels[here - 1]
        return f"level {other}", Conditions(other), None
    for name, value in physics(stage).items():
        raised = varied(value, 1.0 + share)
        return f"{name} {raised:g}", Conditions(usual, ((name, raised, raised),)), None
    seed = stage.order.spec.seed
    return f"{share:.0%} of actions repeated", nominal(stage.order), lambda inner: Sticky(inner, share, seed)


def measure(stage: Stage) -> Finding:
    """One condition; the reference is the policy before fine-tuning, on the same episodes."""
    name, conditions, disturb = changed(stage)
    after_tuning = stage.policy_of(tuned(stage, stage.weights, conditions, disturb))
    rival = _rival(stage, conditions, disturb)
    first = stage.fresh()
    after = stage.play(after_tuning, first, conditions, disturb)
    theirs = stage.play(rival or stage.baseline, first, conditions, disturb)
    before = stage.play(stage.policy, first, conditions, disturb)
    alike = [before] if rival is None else None
    return Finding([f"{name}, {effort(stage)}"], [after], [theirs], [before], "before fine-tuning", alike)


def _rival(stage: Stage, conditions: Conditions, disturb: Disturb | None) -> Policy | None:
    """The serving policy, fine-tuned as ours was; None where it cannot be."""
    if stage.serving is None:
        return None
    try:
        return stage.policy_of(tuned(stage, stage.serving, conditions, disturb))
    except ValueError as mismatch:
        say(f"{stage.dimension}: the serving policy is not fine-tuned: {mismatch}")
        return None
