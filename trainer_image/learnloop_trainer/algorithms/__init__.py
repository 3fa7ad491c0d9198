"""One file per algorithm, found by itself: a module that registers its traits is an algorithm (see `traits`)."""

from importlib import import_module
from pkgutil import iter_modules

import torch

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments import VectorEnvironment
from learnloop_trainer.algorithms import base as traits
from learnloop_trainer.algorithms.base import Learner, Occasion, Traits

__all__ = ["Learner", "Occasion", "Traits", "find", "learner", "traits_of"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def learner(
    parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
) -> Learner:
    """The algorithm these parameters belong to, freshly initialised."""
    made: Learner = traits.of_parameters(parameters).learner(parameters, environment, occasion, device)
    return made


def find(name: str) -> Traits | None:
    """The algorithm of that name; None where there is none."""
    return traits.find(name)


def traits_of(name: str) -> Traits:
    """The algorithm of that name.

    Raises:
        KeyError: there is none.
    """
    traits_there = traits.find(name)
    if traits_there is None:
        raise KeyError(name)
    return traits_there
