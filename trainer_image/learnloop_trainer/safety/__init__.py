"""Actions that must not be executed are not: neither in training nor by the exported policy."""

from learnloop_trainer.safety.audit import Trail
from learnloop_trainer.safety.environment import Shielded, shielded
from learnloop_trainer.safety.shield import Shield

__all__ = ["Shield", "Shielded", "Trail", "shielded"]
