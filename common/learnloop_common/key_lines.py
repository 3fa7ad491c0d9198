"""A secret's value and those before it: a line each, the newest first, so that one follows another without a gap.

    VALUE [from=UNIX_SECOND]

Verification accepts every line. Signing uses the newest one whose second has come: by then every verifier has read it,
although they read it at different times.
"""

import time
from dataclasses import dataclass
from itertools import starmap

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

    def followed_by(self, value: str, since: float = 0.0) -> str:
        """The text with a new first line.

        Raises:
            ValueError: it has the most lines already.
        """
        self._has_room()
        return "\n".join([_line(value, since), *starmap(_line, self.lines)])

    def announcing(self, value: str) -> str:
        """The text with a new last line: all readers know the value before it is used.

        Raises:
            ValueError: it has the most lines already.
        """
        self._has_room()
        return "\n".join([*starmap(_line, self.lines), value])

    def using(self, value: str) -> str:
        """The text with the line of this value before all others.

        Raises:
            ValueError: the value has no line.
        """
        if value not in self.values:
            raise ValueError("has lost the new line: it was removed meanwhile; rotate again")
        return "\n".join([value, *(_line(*other) for other in self.lines if other[0] != value)])

    def _has_room(self) -> None:
        if len(self.lines) >= MOST_LINES:
            raise ValueError(f"has {MOST_LINES} lines, the most: remove one that is not used any more")

    def alone(self) -> str:
        """The text with the newest value only, in use from now on."""
        return self.lines[0][0]


def _line(value: str, since: float) -> str:
    return f"{value}{FROM}{int(since)}" if since else value
