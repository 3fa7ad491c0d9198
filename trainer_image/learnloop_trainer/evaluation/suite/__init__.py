"""Measurements of a policy in addition to its return: the dimensions of the specification's evaluation suite."""

from learnloop_trainer.evaluation.suite.dimensions import measure
from learnloop_trainer.evaluation.suite.disturbances import Stage

__all__ = ["Stage", "measure"]
