"""Curves for other tools: TensorBoard and MLflow."""

from learnloop_trainer.tracking.tracker import Ending, Tracker, tracker

__all__ = ["Ending", "Tracker", "tracker"]
