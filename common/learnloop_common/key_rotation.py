"""A secret's value and those before it: a line each, the newest first, so that one follows another without a gap.

    VALUE [from=UNIX_SECOND]

Verification accepts every line. Signing uses the newest one whose second has come: by then every verifier has read it,
although they read it at different times.
"""

import time
from dataclasses import dataclass

FROM = " from="
MOST_LINES = 3
"""The current value and the one before it; while a rotation is under way, the next one too."""
_BLANKS = " \t\r"
"""No others: a value may have every other character, also those that only Unicode takes for blanks or ends of lines."""


@dataclass(frozen=True, repr=False)
class KeyLines:
    """The values, newest first, each with the second from which it is used."""

    lines: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> "KeyLines":
        """Reads the lines.

        Raises:
            ValueError: there is none, too many, or a time is none; says which line, never what stands there.
        """
        items = []
        for number, line in enumerate(filter(None, (line.strip(_BLANKS) for line in text.split("\n"))), start=1):
            value, sign, second = line.partition(FROM)
            try:
                items.append((value.strip(_BLANKS), float(int(second)) if sign else 0.0))
            except ValueError:
                raise ValueError(f"line {number}: give VALUE, or VALUE{FROM}UNIX_SECOND") from None
        if not 1 <= len(items) <= MOST_LINES:
            raise ValueError(f"has {len(items)} lines; give 1 to {MOST_LINES}, the newest first")
        return cls(tuple(items))

    def __repr__(self) -> str:
        return f"KeyLines({len(self.lines)} lines)"

    @property
    def values(self) -> tuple[str, ...]:
        """All of them, the newest first."""
        return tuple(value for value, _ in self.lines)

    def current(self, now: float | None = None) -> str:
        """The newest one that is in use; the oldest where none is yet."""
        at = time.time() if now is None else now
        return next((value for value, since in self.lines if since <= at), self.lines[-1][0])
