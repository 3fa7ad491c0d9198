"""Environments, always many at a time."""

from learnloop_trainer.environments.base import Bounds, Step, VectorEnvironment
from learnloop_trainer.environments.make import make

__all__ = ["Bounds", "Step", "VectorEnvironment", "make"]
