"""Learning on one thread: small networks gain nothing from a second one."""

from rank_world import make_order

from learnloop_trainer.numerics import settle

__all__ = ["make_order"]

settle(1)
