"""How sure it is that a bound is broken, and the numbers that say so."""

import math
from dataclasses import dataclass

from learnloop_operator.statistics.comparison import chance


@dataclass(frozen=True, slots=True)
class Confidence:
    """Whether the bound is certainly broken, and the half sentence of a verdict about it."""

    broken: bool
    text: str


def of_evidence(evidence: float, alpha: float, what: str) -> Confidence:
    """`evidence` is the log e-value of `what`; it suffices when chance alone reaches it once in 1/alpha."""
    return Confidence(evidence >= math.log(1.0 / alpha), f"P({what}) {chance_text(evidence)}, {1.0 - alpha:.6g} needed")


def chance_text(evidence: float) -> str:
    """The chance that a log e-value speaks of, in four digits; a higher one is never rounded to 1."""
    value = chance(evidence)
    return "> 0.9999" if value > 0.9999 else f"{value:.4f}".rstrip("0").rstrip(".")


def level_text(alpha: float) -> str:
    """The level of an interval that holds at all looks at once."""
    return f"confidence {1.0 - alpha:.6g}"
