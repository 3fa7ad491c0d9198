"""One file per algorithm; `learner` picks it."""

import torch

from learnloop_api.kinds.training_job import DqnParameters, PpoParameters, SacParameters
from learnloop_trainer.algorithms.base import Learner, Occasion
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.algorithms.sac import Sac
from learnloop_trainer.environments import VectorEnvironment

__all__ = ["Learner", "Occasion", "learner"]


def learner(
    parameters: PpoParameters | DqnParameters | SacParameters,
    environment: VectorEnvironment,
    occasion: Occasion,
    device: torch.device,
) -> Learner:
    """The algorithm these parameters belong to, freshly initialised."""
    if isinstance(parameters, PpoParameters):
        return Ppo(parameters, environment, occasion, device)
    if isinstance(parameters, SacParameters):
        return Sac(parameters, environment, occasion, device)
    return Dqn(parameters, environment, occasion, device)
