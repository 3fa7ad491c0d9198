"""One file per algorithm; `learner` picks it."""

import torch

from learnloop_api.kinds.algorithms import BcParameters, DqnParameters, PpoParameters, SacParameters
from learnloop_trainer.algorithms.base import Learner, Occasion
from learnloop_trainer.algorithms.bc import Bc
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.ppo import Ppo
from learnloop_trainer.algorithms.sac import Sac
from learnloop_trainer.environments import VectorEnvironment

__all__ = ["Learner", "Occasion", "learner"]


def learner(
    parameters: PpoParameters | DqnParameters | SacParameters | BcParameters,
    environment: VectorEnvironment,
    occasion: Occasion,
    device: torch.device,
) -> Learner:
    """The algorithm these parameters belong to, freshly initialised."""
    if isinstance(parameters, PpoParameters):
        return Ppo(parameters, environment, occasion, device)
    if isinstance(parameters, SacParameters):
        return Sac(parameters, environment, occasion, device)
    if isinstance(parameters, BcParameters):
        return Bc(parameters, environment, occasion, device)
    return Dqn(parameters, environment, occasion, device)
