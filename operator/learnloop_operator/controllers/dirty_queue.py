"""Which objects need a pass: each at most once in the queue, each at most in one pass at a time."""

import asyncio
import time
from collections.abc import Callable

from learnloop_operator.controllers.key import Key
from learnloop_operator.controllers.lane import Lane

BACKGROUND_SHARE = 8
"""One in so many takes goes to the background while there is news."""
PATIENCE_SECONDS = 120.0
"""Who has waited so long in the background is news. Longer than most floods: their own echoes, which hardly ever show
anything, would go before changes that nobody has looked at yet."""


class DirtyQueue:
    """Level-based work queue. Marking is cheap and idempotent; what was marked during a pass gets another one.

    Two lanes: news (someone changed something) goes before the background (resync, the echo of our own writes), which
    still gets its share, and is news itself after PATIENCE_SECONDS. In each lane a namespace with a thousand dirty
    objects makes one with a single one wait for one pass, not for a thousand: see `Lane` for what it waits at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting = asyncio.Semaphore(0)
        self._lanes = {True: Lane(clock), False: Lane(clock)}
        self._queued: dict[Key, bool] = {}
        self._busy: set[Key] = set()
        self._again: dict[Key, bool] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._again)

    def mark(self, key: Key, urgent: bool = True) -> None:
        """The object may need something done: now."""
        self._cancel(key)
        if key in self._busy:
            self._again[key] = urgent or self._again.get(key, False)
        elif key not in self._queued:
            self._queued[key] = urgent
            self._lanes[urgent].add(key)
            self._waiting.release()
        elif urgent and not self._queued[key]:
            self._promote(key)

    def mark_later(self, key: Key, seconds: float, urgent: bool = True) -> None:
        """Mark in `seconds`, unless something marks it earlier; an earlier timer stays."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if key in self._queued or key in self._again or (timer is not None and timer.when() <= due):
            return
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_at(due, self.mark, key, urgent)

    async def take(self) -> Key:
        """Wait for a dirty object; it is busy until `done`. Its timer is dropped: the pass sets the next one."""
        await self._waiting.acquire()
        key = self._next()
        del self._queued[key]
        self._busy.add(key)
        self._cancel(key)
        return key

    def done(self, key: Key) -> None:
        """The pass is over."""
        self._busy.discard(key)
        if key in self._again:
            self.mark(key, self._again.pop(key))

    def close(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _next(self) -> Key:
        self._taken += 1
        news, background = self._lanes[True], self._lanes[False]
        while (oldest := background.oldest()) and oldest[1] >= PATIENCE_SECONDS:
            self._promote(oldest[0])
        first = background if self._taken % BACKGROUND_SHARE == 0 else news
        return (first or news or background).pop()

    def _promote(self, key: Key) -> None:
        self._lanes[False].remove(key)
        self._lanes[True].add(key)
        self._queued[key] = True

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
