"""A circuit breaker: who asks a server that is away is told so at once, instead of waiting for it each time."""

import time
from collections.abc import Callable

FAILURES = 3
FIRST_REST, LONGEST_REST = 5.0, 300.0


class Breaker:
    """Open after three failures in a row, for twice as long each time; then one caller tries.

    Use from one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0
        self._trying = False

    @property
    def rest(self) -> float:
        """Seconds until somebody may try again; 0 while it is closed."""
        return max(0.0, self._until - self._clock())

    def allows(self) -> bool:
        """Whether to ask now. True has to be followed by `worked`, `failed` or `gave_up`."""
        if self._failures < FAILURES:
            return True
        if self._trying or self.rest > 0.0:
            return False
        self._trying = True
        return True

    def worked(self) -> None:
        """The server answers."""
        self._failures, self._trying, self._until = 0, False, 0.0

    def failed(self) -> None:
        """It does not."""
        self._failures, self._trying = self._failures + 1, False
        if self._failures >= FAILURES:
            rest = FIRST_REST * 2.0 ** min(self._failures - FAILURES, 16)
            self._until = self._clock() + min(rest, LONGEST_REST)

    def gave_up(self) -> None:
        """The caller went away before there was an answer: nothing is known."""
        self._trying = False
