"""The finding of a class of attacks."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Finding:
    """`breaches`: each in a sentence; an attack that was held off is only counted."""

    tried: int = 0
    breaches: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def as_figures(self) -> dict[str, Any]:
        """For the last line."""
        return {"tried": self.tried, "held_off": self.tried - len(self.breaches), **self.figures}
