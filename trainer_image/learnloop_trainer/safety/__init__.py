"""Actions that must not be executed are not: neither in training nor by the exported policy."""

from learnloop_trainer.safety.intervention_log import Trail
from learnloop_trainer.safety.shield import Shield
from learnloop_trainer.safety.shielded_environment import Preferences, Shielded, shielded

__all__ = ["Preferences", "Shield", "Shielded", "Trail", "shielded"]
