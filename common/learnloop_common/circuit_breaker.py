"""A circuit breaker: after failures calls are refused without waiting for the server, for longer each time."""

import time
from collections.abc import Callable


class Breaker:
    """Open after so many failures in a row, for twice as long after each further one; then one caller tries (spec 002).

    Use from one event loop.

    Args:
        clock: seconds, monotonic.
        after: failures in a row that open it.
        first_rest: seconds it is open for at first.
        longest_rest: seconds it is open for at most, whatever the server asks for.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        after: int = 1,
        first_rest: float = 1.0,
        longest_rest: float = 60.0,
    ) -> None:
        self._clock, self._after = clock, after
        self._first_rest, self._longest_rest = first_rest, longest_rest
        self._failures = 0
        self._until = 0.0
        self._trying = False

    @property
    def rest(self) -> float:
        """Seconds until somebody may try again; 0 while it is closed."""
        return max(0.0, self._until - self._clock())

    def allows(self) -> bool:
        """May this caller ask now? True has to be followed by `worked`, `failed` or `gave_up`."""
        if self._failures < self._after:
            return True
        if self._trying or self.rest > 0.0:
            return False
        self._trying = True
        return True

    def worked(self) -> None:
        self._failures, self._trying, self._until = 0, False, 0.0

    def failed(self, rest: float = 0.0) -> None:
        """Count a failure. `rest`: seconds that the server asks for, of which `longest_rest` are believed."""
        self._failures, self._trying = self._failures + 1, False
        if self._failures >= self._after:
            own = self._first_rest * 2.0 ** min(self._failures - self._after, 16)
            self._until = self._clock() + min(max(own, rest), self._longest_rest)

    def gave_up(self) -> None:
        """The caller went away before there was an answer: nothing is known."""
        self._trying = False
