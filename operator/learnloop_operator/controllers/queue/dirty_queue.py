"""Which objects need a pass: each at most once in the queue, each at most in one pass at a time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from learnloop_operator.controllers.queue.fair_order import FairOrder
from learnloop_operator.controllers.queue.object_key import ObjectKey

BACKGROUND_SHARE = 8
"""One in so many takes goes to the background while there is news."""
PATIENCE_SECONDS = 120.0
"""Who has waited so long in the background is news. Longer than most floods: their own echoes, which hardly ever show
anything, would go before changes that nobody has looked at yet."""


class Standing(NamedTuple):
    """Whether an object goes before others, and before which: see `DirtyQueue`."""

    quiet: bool = False
    first: bool = False


class DirtyQueue:
    """Level-based work queue. Marking is cheap and idempotent; what was marked during a pass gets another one.

    Two lanes: news (someone changed something) goes before the background (resync, the echo of our own writes), which
    still gets its share, and is news itself after PATIENCE_SECONDS. In each lane a namespace with a thousand dirty
    objects makes one with a single one wait for one pass, not for a thousand: `FairOrder` says how long it waits at
    most.

    News is *quiet* while no other news of its namespace waits, if none did when it came. It waits in its lane like all
    others, and also for those who take nothing else (`take_quiet`): in a flood everybody else is in the middle of a
    pass.

    *First* is what an arm's users suffer from meanwhile (`mark_first`): it goes before all of it, first come first
    served, to whoever takes next, those who take quiet news included. It keeps its place in its lane, and the takes of
    it count for nobody: the bounds of all others hold in the takes beside it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting = asyncio.Semaphore(0)
        self._lanes = {True: FairOrder(clock), False: FairOrder(clock)}
        self._queued: dict[ObjectKey, bool] = {}
        self._quiet: OrderedDict[str, ObjectKey] = OrderedDict()
        """By namespace, the first come first."""
        self._alone = asyncio.Event()
        """Set while something quiet, or first, may wait."""
        self._first: OrderedDict[ObjectKey, None] = OrderedDict()
        """What goes before everything; it waits, or a pass over it is still under way."""
        self._busy: dict[ObjectKey, Standing] = {}
        """What a pass is under way over, and what it was when it was taken."""
        self._again: dict[ObjectKey, bool] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._again)

    def mark(self, key: ObjectKey, urgent: bool = True) -> None:
        """The object may need something done: now."""
        self._cancel(key)
        if key in self._busy:
            self._again[key] = urgent or self._again.get(key, False)
        elif key not in self._queued:
            self._add(key, urgent)
            self._waiting.release()
        elif urgent and not self._queued[key]:
            self._promote(key)

    def mark_first(self, key: ObjectKey) -> None:
        """The object needs a pass before everything else, also when it waits already; during a pass over it, right
        after that. Only what the operator itself has seen may come here: whatever a user can write would make an order
        in which whoever writes most goes first."""
        self.mark(key)
        self._first.setdefault(key)
        self._alone.set()

    def mark_later(self, key: ObjectKey, seconds: float, urgent: bool = True) -> None:
        """Mark in `seconds`, unless something marks it earlier; an earlier timer stays."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if key in self._queued or key in self._again or (timer is not None and timer.when() <= due):
            return
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_at(due, self.mark, key, urgent)

    def comes_within(self, key: ObjectKey, seconds: float) -> bool:
        """Whether the object waits for a pass, or will be marked in so many seconds at the latest."""
        timer = self._timers.get(key)
        if timer is not None:
            return timer.when() <= asyncio.get_running_loop().time() + seconds
        return key in self._queued or key in self._again

    async def take(self) -> ObjectKey:
        """Wait for a dirty object; it is busy until `done`. Its timer is dropped: the pass sets the next one."""
        await self._waiting.acquire()
        return self._begin(self._next())

    async def take_quiet(self) -> ObjectKey:
        """The same of what is quiet or first."""
        while True:
            await self._alone.wait()
            key = self._at_once() or next(iter(self._quiet.values()), None)
            if key is not None and not self._waiting.locked():  # locked: as many are being taken as there are
                await self._waiting.acquire()
                self._lanes[True].remove(key)
                return self._begin(key)
            self._alone.clear()

    def standing(self, key: ObjectKey) -> Standing:
        """What the object, over which a pass is under way, was when it was taken."""
        return self._busy.get(key, Standing())

    def done(self, key: ObjectKey) -> None:
        """The pass is over."""
        self._busy.pop(key, None)
        if key in self._again:
            again = self._again.pop(key)
            if key in self._first:
                self.mark_first(key)
            else:
                self.mark(key, again)

    def close(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _at_once(self) -> ObjectKey | None:
        return next((key for key in self._first if key in self._queued), None)

    def _next(self) -> ObjectKey:
        first = self._at_once()
        if first is not None:
            self._lanes[True].remove(first)
            return first
        self._taken += 1
        news, background = self._lanes[True], self._lanes[False]
        while (oldest := background.oldest()) and oldest[1] >= PATIENCE_SECONDS:
            self._promote(oldest[0])
        lane = background if self._taken % BACKGROUND_SHARE == 0 else news
        return (lane or news or background).pop()

    def _begin(self, key: ObjectKey) -> ObjectKey:
        del self._queued[key]
        quiet = self._quiet.get(key.namespace) == key
        if quiet:
            del self._quiet[key.namespace]
        self._busy[key] = Standing(quiet, key in self._first)
        self._first.pop(key, None)
        self._cancel(key)
        return key

    def _add(self, key: ObjectKey, urgent: bool) -> None:
        if urgent and self._lanes[True].empty(key.namespace):
            self._quiet[key.namespace] = key
            self._alone.set()
        elif urgent:
            self._quiet.pop(key.namespace, None)
        self._queued[key] = urgent
        self._lanes[urgent].add(key)

    def _promote(self, key: ObjectKey) -> None:
        self._lanes[False].remove(key)
        self._add(key, True)

    def _cancel(self, key: ObjectKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
