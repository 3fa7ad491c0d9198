"""Whoever asks a server that is away, or wants a rest, is told so at once instead of waiting for it each time."""

import time
from collections.abc import Callable

FIRST_REST, LONGEST_REST = 1.0, 60.0


class Breaker:
    """Open for a second after a failure, for twice as long after each further one; then one caller tries.

    Use from one event loop.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0
        self._trying = False

    def allows(self) -> bool:
        """May this caller ask now? True has to be followed by `worked`, `failed` or `gave_up`."""
        if not self._failures:
            return True
        if self._trying or self._clock() < self._until:
            return False
        self._trying = True
        return True

    def worked(self) -> None:
        """The server answers."""
        self._failures, self._trying = 0, False

    def failed(self, rest: float = 0.0) -> None:
        """It does not, or asks for a rest of so many seconds, of which a minute is believed."""
        own = min(FIRST_REST * 2.0 ** min(self._failures, 16), LONGEST_REST)
        self._until = self._clock() + max(own, min(rest, LONGEST_REST))
        self._failures, self._trying = self._failures + 1, False

    def gave_up(self) -> None:
        """The caller went away before there was an answer: nothing is known."""
        self._trying = False
