"""Actions that must not be executed are not: neither in training nor by the exported policy."""

from learnloop_trainer.safety.shield import Preferences, Shield, Shielded, Trail, shielded

__all__ = ["Preferences", "Shield", "Shielded", "Trail", "shielded"]
