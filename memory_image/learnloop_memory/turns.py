"""A bounded number at once, a short queue for the rest: what cannot be answered soon is refused at once."""

import asyncio
import time
from collections import deque

from learnloop_memory.errors import ApiError


class Turns:
    """An async context manager around the work. Overload then costs some callers a retry, and nobody a long wait.

    Args:
        at_once: how many are in at a time.
        patience: seconds one may have waited; whoever waited longer is refused when a turn comes.
        most_waiting: above, one is refused on arrival.
    """

    def __init__(self, *, at_once: int, patience: float, most_waiting: int = 256) -> None:
        self._free = at_once
        self._patience = patience
        self._most = most_waiting
        self._queue: deque[tuple[asyncio.Future[None], float]] = deque()

    async def __aenter__(self) -> None:
        """Waits for a turn.

        Raises:
            ApiError: 429, it did not come in time.
        """
        if self._free:
            self._free -= 1
            return
        if len(self._queue) >= self._most:
            raise _too_many()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, time.monotonic()))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        now = time.monotonic()
        while self._queue:
            turn, since = self._queue.popleft()
            if turn.done():  # gave up
                continue
            if now - since > self._patience:
                turn.set_exception(_too_many())
                continue
            turn.set_result(None)
            return
        self._free += 1


def _too_many() -> ApiError:
    return ApiError(429, "more recalls than can be answered in time; send it again after a second", retry_after=1)
