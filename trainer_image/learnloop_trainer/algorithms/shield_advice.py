"""Connects a shield with the learner that it watches."""

from functools import partial

from learnloop_environments import VectorEnvironment
from learnloop_trainer.algorithms.base import Learner, Traits
from learnloop_trainer.safety import Preferences, Shielded


def advise(environment: VectorEnvironment, learner: Learner, traits: Traits, seed: int) -> None:
    """Give a shielded environment's record the learner's values, and the shield its preferences.

    Without preferences a shield can only take the fallback, so the learner would learn from other actions than the
    exported graph takes.
    """
    if not isinstance(environment, Shielded):
        return
    if traits.q_value is not None:
        environment.worth = partial(traits.q_value, learner)
    if traits.preferences is not None and environment.bounds is None:
        environment.preferences = Preferences(partial(traits.preferences, learner), traits.draws, seed)
