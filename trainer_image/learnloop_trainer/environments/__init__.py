"""Environments, always many at a time."""

from learnloop_trainer.environments.base import Bounds, Step, Team, VectorEnvironment
from learnloop_trainer.environments.gymnasium_api import register
from learnloop_trainer.environments.make import action_space, make
from learnloop_trainer.environments.simulation import Conditions

__all__ = ["Bounds", "Conditions", "Step", "Team", "VectorEnvironment", "action_space", "make"]

register()
