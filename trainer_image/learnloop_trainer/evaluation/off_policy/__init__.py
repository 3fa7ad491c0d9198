"""Estimates how good a policy would be from episodes of other policies, where no environment can be played."""

from learnloop_trainer.evaluation.off_policy.estimate import Estimate, evaluate
from learnloop_trainer.evaluation.off_policy.fitted_q import LoggedSteps

__all__ = ["Estimate", "LoggedSteps", "evaluate"]
