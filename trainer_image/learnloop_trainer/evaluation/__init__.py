"""How good a policy is, on episodes that training never saw."""

from learnloop_trainer.evaluation.play import Drawing, Policy, Uniform, World, collect, play
from learnloop_trainer.statistics.return_estimate import difference, estimate, improvement

__all__ = ["Drawing", "Policy", "Uniform", "World", "collect", "difference", "estimate", "improvement", "play"]
