"""Environments, always many at a time."""

from learnloop_environments.make import action_space, code_digest, make
from learnloop_environments.simulation import Conditions, Simulation
from learnloop_environments.spaces import Bounds, Step, Team, VectorEnvironment

__all__ = [
    "Bounds",
    "Conditions",
    "Simulation",
    "Step",
    "Team",
    "VectorEnvironment",
    "action_space",
    "code_digest",
    "make",
]
