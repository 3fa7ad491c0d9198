"""When to read a pod again that did not answer, and how often pods are read in fact."""

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Generic, TypeVar

FIRST, LONGEST = 1.0, 10.0
"""Seconds until somebody silent is asked again; twice as long after each time, up to LONGEST."""
PERIODS = (1, 2, 5, 10, 20, 30, 60)
"""Periods that are told, in seconds: a figure that moves with every pod of the cluster would be written with each."""
REMEMBERED = 9
"""Looks whose distance is remembered; their median is what is told."""
SLOWER, FASTER = 1.5, 1.2
"""A period is told until looks are SLOWER times that apart, and a shorter one from FASTER times that on."""

K = TypeVar("K")


class ReadBackoff(Generic[K]):
    """Pods that did not answer lately. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._silent: dict[K, tuple[int, float]] = {}

    def due(self, them: Sequence[K], now: float) -> tuple[K, ...]:
        """Those to ask at `now`; who is not among `them` any more is forgotten."""
        here = set(them)
        self._silent = {key: known for key, known in self._silent.items() if key in here}
        return tuple(key for key in them if key not in self._silent or self._silent[key][1] <= now)

    def answered(self, key: K) -> None:
        """It is asked each time again."""
        self._silent.pop(key, None)

    def missed(self, key: K, asked_at: float) -> None:
        """It was asked and did not answer."""
        times = self._silent.get(key, (0, 0.0))[0]
        self._silent[key] = (min(times + 1, 16), asked_at + min(LONGEST, FIRST * 2**times))


class ReadInterval:
    """How far apart looks are, as measured."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED)
        self._last: float | None = None
        self.every = PERIODS[0]
        """Seconds between two looks, rounded to one of PERIODS (beyond them to whole seconds), slow to change."""

    def looked(self, now: float) -> None:
        """A look ended at `now`."""
        if self._last is not None:
            self._gaps.append(now - self._last)
            gap = median(self._gaps)
            slower, faster = rounded(gap / SLOWER), rounded(gap / FASTER)
            self.every = slower if slower > self.every else min(self.every, faster)
        self._last = now


def rounded(seconds: float) -> int:
    """Up to one of PERIODS; beyond them to whole seconds."""
    return next((period for period in PERIODS if seconds <= period), round(seconds))
