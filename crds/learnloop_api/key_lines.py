"""A secret's value and those before it: a line each, the newest first, so that one follows another without a gap.

    VALUE [from=UNIX_SECOND]

Whoever verifies takes every line. Whoever signs takes the newest one whose second has come: by then all who verify have
read it, although they read it at different times.
"""

import time
from dataclasses import dataclass

FROM = " from="
MOST_LINES = 16


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
        found = []
        for number, line in enumerate((line.strip() for line in text.splitlines() if line.strip()), start=1):
            value, sign, second = line.partition(FROM)
            try:
                found.append((value.strip(), float(int(second)) if sign else 0.0))
            except ValueError:
                raise ValueError(f"line {number}: give VALUE, or VALUE{FROM}UNIX_SECOND") from None
        if not 1 <= len(found) <= MOST_LINES:
            raise ValueError(f"has {len(found)} lines; give 1 to {MOST_LINES}, the newest first")
        return cls(tuple(found))

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

    def followed_by(self, value: str, since: float) -> str:
        """The text with a new first line; what no longer fits goes."""
        kept = [f"{old}{FROM}{int(second)}" if second else old for old, second in self.lines]
        return "\n".join([f"{value}{FROM}{int(since)}" if since else value, *kept[: MOST_LINES - 1]])

    def alone(self) -> str:
        """The text with the newest value only, in use from now on."""
        return self.lines[0][0]
