"""Curves for other tools: TensorBoard and MLflow."""

from learnloop_trainer.tracking.services import Ending
from learnloop_trainer.tracking.tracker import Tracker, tracker

__all__ = ["Ending", "Tracker", "tracker"]
