"""LEARNLOOP_TUNING_OFF: which parts of a program's tuning are off. Each program works without any of its own."""

import os
from dataclasses import dataclass

VARIABLE = "LEARNLOOP_TUNING_OFF"
ALL = "all"


@dataclass(frozen=True)
class Switches:
    """The parts of one program's tuning, each on until the variable names it, or `all`."""

    parts: frozenset[str]

    def off(self, text: str) -> frozenset[str]:
        """The parts that the variable's value switches off, names between commas.

        Raises:
            ValueError: it names something else.
        """
        named = frozenset(item.strip() for item in text.split(",") if item.strip())
        if strange := sorted(named - self.parts - {ALL}):
            raise ValueError(
                f"{VARIABLE} names {', '.join(strange)}: set {ALL}, or some of {', '.join(sorted(self.parts))}"
            )
        return self.parts if ALL in named else named

    def is_on(self, part: str) -> bool:
        """Whether the part is on. A value that is no list of parts switches nothing off; the program refuses it."""
        try:
            return part not in self.off(os.environ.get(VARIABLE, ""))
        except ValueError:
            return True
