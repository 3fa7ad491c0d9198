"""All controllers of the operator."""

from typing import Any

from learnloop_operator.controllers.model_deployment import ModelDeploymentController
from learnloop_operator.controllers.runtime import Controller
from learnloop_operator.controllers.services import Services


def controllers(services: Services) -> list[Controller[Any]]:
    """One per kind."""
    return [
        ModelDeploymentController(services),
    ]
