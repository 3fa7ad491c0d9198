"""How good a policy is, on episodes that training never saw."""

from learnloop_trainer.evaluation.held_out_episodes import Drawing, Policy, Uniform, World, collect, play
from learnloop_trainer.statistics import difference, estimate

__all__ = ["Drawing", "Policy", "Uniform", "World", "collect", "difference", "estimate", "play"]
