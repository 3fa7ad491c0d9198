"""All controllers of the operator."""

from typing import Any

from learnloop_operator.controllers.passes.runtime import Controller
from learnloop_operator.controllers.reconcilers.learning_agent import LearningAgentController
from learnloop_operator.controllers.reconcilers.memory_service import MemoryServiceController
from learnloop_operator.controllers.reconcilers.model_deployment import ModelDeploymentController
from learnloop_operator.controllers.reconcilers.reward_policy import RewardPolicyController
from learnloop_operator.controllers.reconcilers.training_job import TrainingJobController
from learnloop_operator.controllers.services import Services


def controllers(services: Services) -> list[Controller[Any]]:
    """One per kind."""
    return [
        TrainingJobController(services),
        RewardPolicyController(services),
        MemoryServiceController(services),
        ModelDeploymentController(services),
        LearningAgentController(services),
    ]
