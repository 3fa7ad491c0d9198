"""What a little fine-tuning in changed conditions brings: the same algorithm goes on from the trained weights."""

import torch

from learnloop_trainer.algorithms import Occasion, learner
from learnloop_trainer.environments import Conditions, make
from learnloop_trainer.evaluation.suite.disturbances import Sticky
from learnloop_trainer.evaluation.suite.robustness import physics, varied
from learnloop_trainer.evaluation.suite.stage import Disturb, Finding, NotMeasured, Stage, Weights
from learnloop_trainer.evaluation.worlds import nominal, sample
from learnloop_trainer.groups import Alone
from learnloop_trainer.randomness import Split
from learnloop_trainer.safety import shielded
from learnloop_trainer.transfer import warm

RECORDED = {"bc", "vtrace"}
FAMILY = {"maml"}


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
    algorithm = stage.order.spec.algorithm
    if algorithm in RECORDED:
        raise NotMeasured(f"{algorithm} learns from recorded experience: there is none under changed conditions")
    name, conditions, disturb = changed(stage)
    tuned = stage.policy_of(_tuned(stage, conditions, disturb))
    first = stage.fresh()
    after = stage.play(tuned, first, conditions, disturb)
    theirs = stage.play(stage.baseline, first, conditions, disturb)
    before = stage.play(stage.policy, first, conditions, disturb)
    condition = f"{name}, {stage.suite.adaptation_steps} steps"
    return Finding([condition], [after], [theirs], [before], "before fine-tuning")


def _tuned(stage: Stage, conditions: Conditions, disturb: Disturb | None) -> Weights:
    """Weights after fine-tuning on training's seeds; raises NotMeasured when the time is up."""
    spec, parameters = stage.order.spec, stage.order.parameters
    if spec.algorithm in FAMILY:
        raise NotMeasured("maml's export is adapted already: evaluation itself shows what adaptation brings")
    explored = getattr(parameters, "epsilon_end", None)
    if explored is not None:
        parameters = parameters.model_copy(update={"epsilon_start": explored})
    world = make(spec.data.environment, Split.TRAINING, spec.seed, range(parameters.environments), conditions)
    world = shielded(world if disturb is None else disturb(world), spec.safety)
    try:
        occasion = Occasion(spec.seed, stage.suite.adaptation_steps, parameters.environments, Alone())
        student = learner(parameters, world, occasion, torch.device(stage.device))
        warm(student, stage.weights)
        observation = world.reset()
        while student.step < stage.suite.adaptation_steps:
            stage.alive(f"adaptability: step {student.step}/{stage.suite.adaptation_steps}")
            stage.check()
            observation, _ = student.iterate(observation)
        return {name: array.copy() for name, array in student.network.exported().items()}
    finally:
        world.close()
