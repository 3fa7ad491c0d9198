"""Who plays for a learner, and whose fragments it still counts on.

A process that is stopped, or an environment that hangs, keeps its connection: nothing says that its fragment will never
come. So a fragment that takes far longer than those of the others is counted on no more. When it comes after all, it
is taken like any other.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE_SECONDS = 20.0
TIMES = 10.0  # as long as the median
REMEMBERED = 64  # fragments


@dataclass(eq=False, slots=True)
class Seat:
    """One sampler. `began`: when it began the fragment that it has not sent yet; None: it plays nothing."""

    environments: int
    began: float | None

    @property
    def playing(self) -> bool:
        """Is there a fragment that it has not sent?"""
        return self.began is not None


class Seats:
    """All samplers that are connected. Not thread-safe: its owner has a lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: set[Seat] = set()
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)
        self.most = 0

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def environments(self) -> int:
        """Of all samplers."""
        return sum(seat.environments for seat in self._taken)

    def take(self, environments: int) -> Seat:
        """A sampler came, and plays from now on."""
        seat = Seat(environments, self._clock())
        self._taken.add(seat)
        self.most = max(self.most, len(self._taken))
        return seat

    def leave(self, seat: Seat) -> None:
        """It went; what it had begun will never come."""
        self._taken.discard(seat)

    def begin(self, seat: Seat) -> None:
        """It plays a fragment."""
        seat.began = self._clock()

    def end(self, seat: Seat) -> None:
        """It has sent what it played."""
        if seat.began is not None:
            self._lasted.append(self._clock() - seat.began)
        seat.began = None

    def rows_expected(self) -> int:
        """Rows that are played now and will come soon."""
        return sum(seat.environments for seat in self._taken if seat.playing and not self._overdue(seat))

    def overdue(self) -> int:
        """Samplers whose fragment nobody counts on any more."""
        return sum(self._overdue(seat) for seat in self._taken)

    def _overdue(self, seat: Seat) -> bool:
        if seat.began is None or not self._lasted:
            return False  # who is the first to come may take as long as it likes
        usual = TIMES * statistics.median(self._lasted)
        return self._clock() - seat.began > max(PATIENCE_SECONDS, usual)
