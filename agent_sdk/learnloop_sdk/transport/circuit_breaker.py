"""A circuit breaker: whoever asks a service that is away is told so at once, instead of waiting for it each time."""

import time

FIRST_REST, LONGEST_REST = 1.0, 60.0


class Breaker:
    """Open after so many failures in a row for a second, after each further one for twice as long; then one caller
    tries (spec 002).

    Use from one event loop.
    """

    def __init__(self, after: int = 1) -> None:
        self._after = after
        self._failures = 0
        self._until = 0.0
        self._trying = False

    def allows(self) -> bool:
        """Whether to ask now. True has to be followed by `worked`, `failed` or `gave_up`."""
        if self._failures < self._after:
            return True
        if self._trying or time.monotonic() < self._until:
            return False
        self._trying = True
        return True

    def worked(self) -> None:
        """The service answers."""
        self._failures, self._trying = 0, False

    def failed(self) -> None:
        """It does not."""
        self._failures, self._trying = self._failures + 1, False
        if self._failures >= self._after:
            rest = FIRST_REST * 2.0 ** min(self._failures - self._after, 16)
            self._until = time.monotonic() + min(rest, LONGEST_REST)

    def gave_up(self) -> None:
        """The caller went away before there was an answer: nothing is known."""
        self._trying = False
