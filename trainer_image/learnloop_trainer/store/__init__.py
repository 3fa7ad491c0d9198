"""Storage of a run's heartbeats, checkpoints, artifact and manifest."""

from learnloop_trainer.store.factory import choose
from learnloop_trainer.store.run_store import SavedCheckpoint, Store

__all__ = ["SavedCheckpoint", "Store", "choose"]
