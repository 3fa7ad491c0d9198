"""Experience that is learned from more than once."""

from learnloop_trainer.replay.ring_buffer import Replay, Transitions
from learnloop_trainer.replay.sum_tree import Priorities

__all__ = ["Priorities", "Replay", "Transitions"]
