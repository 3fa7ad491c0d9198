"""How good a policy is, on episodes that training never saw."""

from learnloop_trainer.evaluation.estimate import difference, estimate, improvement
from learnloop_trainer.evaluation.play import Drawing, Policy, Uniform, World, collect, play

__all__ = ["Drawing", "Policy", "Uniform", "World", "collect", "difference", "estimate", "improvement", "play"]
