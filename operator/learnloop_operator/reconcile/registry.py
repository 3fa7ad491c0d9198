"""All controllers of the operator."""

from typing import Any

from learnloop_operator.reconcile.learning_agent import LearningAgentController
from learnloop_operator.reconcile.memory_service import MemoryServiceController
from learnloop_operator.reconcile.model_deployment import ModelDeploymentController
from learnloop_operator.reconcile.reward_policy import RewardPolicyController
from learnloop_operator.reconcile.runtime import Controller
from learnloop_operator.reconcile.services import Services
from learnloop_operator.reconcile.training_job import TrainingJobController


def controllers(services: Services) -> list[Controller[Any]]:
    """One per kind."""
    return [
        TrainingJobController(services),
        RewardPolicyController(services),
        MemoryServiceController(services),
        ModelDeploymentController(services),
        LearningAgentController(services),
    ]
