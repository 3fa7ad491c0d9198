"""Learning on one thread: small networks gain nothing from a second one."""

from learnloop_trainer.numerics import settle

settle(1)
