"""How work that keeps out of the way rests."""

import time
from collections.abc import Callable

WORK_SECONDS, REST_SECONDS = 0.002, 0.008  # Python lets one thread work at a time, and recalls are others


class Rests:
    """Called often by a thread with much to do: sends it to sleep, four times as long as it has worked.

    Args:
        clock: seconds, monotonic.
        sleep: so many seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + WORK_SECONDS

    def __call__(self) -> None:
        """A good place for a rest."""
        if self._clock() >= self._until:
            self._sleep(REST_SECONDS)
            self._until = self._clock() + WORK_SECONDS
