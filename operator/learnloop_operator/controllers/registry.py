"""All controllers of the operator."""

from typing import Any

from learnloop_operator.controllers.learning_agent import LearningAgentController
from learnloop_operator.controllers.memory_service import MemoryServiceController
from learnloop_operator.controllers.model_deployment import ModelDeploymentController
from learnloop_operator.controllers.reward_policy import RewardPolicyController
from learnloop_operator.controllers.runtime import Controller
from learnloop_operator.controllers.services import Services
from learnloop_operator.controllers.training_job import TrainingJobController


def controllers(services: Services) -> list[Controller[Any]]:
    """One per kind."""
    return [
        TrainingJobController(services),
        RewardPolicyController(services),
        MemoryServiceController(services),
        ModelDeploymentController(services),
        LearningAgentController(services),
    ]
