"""A bounded number at once, a short queue for the rest: what cannot be answered soon is refused at once."""

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass

from learnloop_dataplane.errors import ApiError

LATEST_SECONDS = 2  # whoever is refused is asked to come back by then
SHARE = 0.05  # of the latest wait in the pace


@dataclass(slots=True)
class _Waiting:
    """One in the queue: since when, and how many had ended by then."""

    turn: asyncio.Future[None]
    since: float
    ended: int


class Turns:
    """An async context manager around the work. Overload then costs some callers a retry, and nobody a long wait.

    Args:
        at_once: how many are in at a time.
        patience: seconds one may wait. Who would wait longer, by the pace at which others got their turns of late, is
            refused on arrival; who did in spite of that, when the turn comes.
        most_waiting: above, one is refused on arrival.
    """

    def __init__(self, *, at_once: int, patience: float, most_waiting: int = 256) -> None:
        self._free = at_once
        self._patience = patience
        self._most = most_waiting
        self._queue: deque[_Waiting] = deque()
        self._ended = 0
        self._pace = 0.0  # seconds from one end to the next while somebody waits, of late

    def expect(self) -> None:
        """For before anything else is done for one: a refusal that comes first costs next to nothing.

        Raises:
            ApiError: 429, no turn would come in time.
        """
        waiting = len(self._queue)
        # One may always wait, or a pace that was slow once would never be found to be better.
        if waiting >= self._most or (waiting and (waiting + 1) * self._pace > self._patience):
            raise _too_many()

    async def __aenter__(self) -> None:
        """Waits for a turn.

        Raises:
            ApiError: 429, none would come in time, or it did not.
        """
        if self._free:
            self._free -= 1
            return
        self.expect()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(turn, time.monotonic(), self._ended))
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
        self._ended += 1
        while self._queue:
            one = self._queue.popleft()
            if one.turn.done():  # gave up
                continue
            waited = now - one.since
            pace = waited / (self._ended - one.ended)
            self._pace += SHARE * (pace - self._pace) if self._pace else pace
            if waited > self._patience:
                one.turn.set_exception(_too_many())
                continue
            one.turn.set_result(None)
            return
        self._free += 1


def _too_many() -> ApiError:
    # Those who are refused together would come back together, and be refused together again.
    seconds = random.randint(1, LATEST_SECONDS)
    message = f"more recalls than can be answered in time; send it again after {seconds} s"
    return ApiError(429, message, retry_after=seconds)
