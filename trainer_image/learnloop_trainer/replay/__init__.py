"""Experience that is learned from more than once."""

from learnloop_trainer.replay.priorities import Priorities
from learnloop_trainer.replay.rings import Replay, Transitions

__all__ = ["Priorities", "Replay", "Transitions"]
