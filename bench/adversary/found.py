"""What a class of attacks has found."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Found:
    """`breaches`: each in a sentence; an attack that was held off is only counted."""

    tried: int = 0
    breaches: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """For the last line."""
        return {"tried": self.tried, "held_off": self.tried - len(self.breaches), **self.figures}
