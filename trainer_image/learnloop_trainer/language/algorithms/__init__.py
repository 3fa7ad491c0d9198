"""The algorithms for language models."""

from dataclasses import dataclass

from learnloop_trainer.language.algorithms.grpo_rloo_ppo import grpo, ppo, rloo
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import BradleyTerry, Dpo, Sft
from learnloop_trainer.language.network import Maker


@dataclass(frozen=True, slots=True)
class LanguageTraits:
    """One algorithm.

    Attributes:
        learner: makes one of parameters and setting.
        values: it needs a value head.
        base: it asks for the base model's opinion whatever its parameters say.
    """

    learner: Maker
    values: bool = False
    base: bool = False


ALGORITHMS = {
    "bradley-terry": LanguageTraits(BradleyTerry, values=True),
    "dpo": LanguageTraits(Dpo, base=True),
    "grpo": LanguageTraits(grpo),
    "ppo-lm": LanguageTraits(ppo, values=True),
    "rloo": LanguageTraits(rloo),
    "sft": LanguageTraits(Sft),
}
"""By their names in a TrainingJob."""
