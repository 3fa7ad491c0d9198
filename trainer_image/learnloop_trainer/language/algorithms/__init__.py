"""One file per algorithm for language models, found by itself: a module that registers its traits is an algorithm."""

from importlib import import_module
from pkgutil import iter_modules

from learnloop_trainer.language.algorithms.traits import LanguageTraits, find, registered

__all__ = ["LanguageTraits", "find", "registered"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
