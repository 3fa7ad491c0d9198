"""Where a run's heartbeats, checkpoints, artifact and manifest live."""

from learnloop_trainer.store.base import SavedCheckpoint, Store
from learnloop_trainer.store.choose import choose

__all__ = ["SavedCheckpoint", "Store", "choose"]
