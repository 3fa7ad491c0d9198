"""What the rest of the trainer has to know of an algorithm for language models."""

from dataclasses import dataclass

from learnloop_trainer.language.learning import Maker


@dataclass(frozen=True, slots=True)
class LanguageTraits:
    """One algorithm.

    Attributes:
        name: as a TrainingJob writes it.
        learner: makes one of parameters and setting.
        values: it needs a value head.
        base: it asks for the base model's opinion whatever its parameters say.
        scores: what it makes scores answers and gives none: a reward model.
    """

    name: str
    learner: Maker
    values: bool = False
    base: bool = False
    scores: bool = False


_by_name: dict[str, LanguageTraits] = {}


def register(traits: LanguageTraits) -> LanguageTraits:
    """Makes an algorithm known to the trainer; raises ValueError when another one has that name."""
    if traits.name in _by_name:
        raise ValueError(f"two algorithms for language models are named {traits.name}")
    _by_name[traits.name] = traits
    return traits


def registered() -> tuple[LanguageTraits, ...]:
    """All algorithms, in the order of their names."""
    return tuple(_by_name[name] for name in sorted(_by_name))


def find(name: str) -> LanguageTraits | None:
    """The algorithm of that name; None where there is none."""
    return _by_name.get(name)
