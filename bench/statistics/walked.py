"""The result of a simulated walk."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Walked:
    """The result of a walk. `wrong`: sentences about broken promises, none if all is well."""

    steps: int = 0
    tables: int = 0
    rollouts: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def plus(self, other: "Walked") -> "Walked":
        """Both together."""
        return Walked(
            self.steps + other.steps,
            self.tables + other.tables,
            self.rollouts + other.rollouts,
            self.ends + other.ends,
            self.wrong + other.wrong,
            self.cpu_seconds + other.cpu_seconds,
        )
