"""Learning on one thread: small networks gain nothing from a second one."""

from learnloop_trainer.floating_point import settle
from testing.training.training_ranks import make_order

__all__ = ["make_order"]

settle(1)
