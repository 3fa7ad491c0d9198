"""Curves for other tools: TensorBoard, MLflow, Weights & Biases."""

from learnloop_trainer.tracking.tracker import Ending, Tracker, tracker

__all__ = ["Ending", "Tracker", "tracker"]
