"""What a little fine-tuning in changed conditions brings."""

from learnloop_trainer.environments import Conditions
from learnloop_trainer.evaluation.suite.disturbances import Sticky
from learnloop_trainer.evaluation.suite.fine_tuning import effort, tuned
from learnloop_trainer.evaluation.suite.robustness import physics, varied
from learnloop_trainer.evaluation.suite.stage import Disturb, Finding, Stage
from learnloop_trainer.evaluation.worlds import nominal, sample


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
    first = stage.fresh()
    after = stage.play(after_tuning, first, conditions, disturb)
    theirs = stage.play(stage.baseline, first, conditions, disturb)
    before = stage.play(stage.policy, first, conditions, disturb)
    return Finding([f"{name}, {effort(stage)}"], [after], [theirs], [before], "before fine-tuning")
