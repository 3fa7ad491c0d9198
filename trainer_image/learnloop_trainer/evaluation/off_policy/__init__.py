"""How good a policy would be, from episodes that other policies had: where nobody can play."""

from learnloop_trainer.evaluation.off_policy.estimate import Estimate, evaluate
from learnloop_trainer.evaluation.off_policy.fitted_q import LoggedSteps

__all__ = ["Estimate", "LoggedSteps", "evaluate"]
