"""One file per algorithm, found by itself: a module that registers its traits is an algorithm (see `base.Traits`)."""

from importlib import import_module
from pkgutil import iter_modules

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_trainer.algorithms.base import Learner, Occasion, Traits, find, traits_of

__all__ = ["Learner", "Occasion", "Traits", "find", "learner", "traits_of"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def learner(
    parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
) -> Learner:
    """The algorithm these parameters belong to, freshly initialised."""
    made: Learner = traits_of(parameters.algorithm.name).learner(parameters, environment, occasion, device)
    return made
