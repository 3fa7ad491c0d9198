"""What is asked of a policy beside its return: one file for each dimension of the specification's evaluation suite."""

from learnloop_trainer.evaluation.suite.dimensions import measure
from learnloop_trainer.evaluation.suite.stage import Stage

__all__ = ["Stage", "measure"]
