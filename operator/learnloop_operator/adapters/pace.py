"""How many requests may be under way at once: fewer when the API server gets slower, as TCP does it.

Requests in flight beyond what the API server can work on only wait there, in front of everybody's watches and writes,
our own among them. So their number follows what comes back (additive increase, multiplicative decrease: Chiu and Jain
1989): each answer in good time earns a part of a place, a late one, a 429 or none at all costs places.

Who waits for a place goes before the namespaces that have asked for more of late (decay-usage scheduling: Hellerstein
1993), so that one object that changes now and then is not slowed down by passes that ask for dozens of objects at once,
nor by a flood in fifty other namespaces. One place in four goes to the request that has waited longest, whoever's it
is: one with m before it waits for no more than 4 (m + 1).
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

FEWEST, MOST = 4, 32
"""Requests at once. The fewest are enough to keep two cores of an API server busy."""
LATE_SECONDS = 0.1
"""No answer within this time is late, however quick the best one was."""
LATE_FACTOR = 4.0
"""Late is what took so many times as long as the quickest answer lately: a distant API server is not a busy one."""
EASE, REFUSED = 0.8, 0.5
"""What is left of the places after a late answer, and after a refusal."""
MEMORY_SECONDS = 60.0
LATELY_SECONDS = 2.0
"""After each of these what a namespace has asked for counts half."""
OLDEST_EACH = 4

_served: ContextVar[str] = ContextVar("served", default="")


@contextmanager
def on_behalf_of(namespace: str) -> Iterator[None]:
    """Requests made inside, and by tasks begun inside, are this namespace's. What is made outside of any counts as one
    namespace more."""
    before = _served.set(namespace)
    try:
        yield
    finally:
        _served.reset(before)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A request; the one with the lower number came first."""

    number: int
    place: asyncio.Future[None]


class Pace:
    """Places for requests; those of one namespace are served in order."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowed = float(MOST)
        self._busy = 0
        self._waiting: dict[str, deque[_Waiting]] = {}
        """By namespace, each in order; none is empty."""
        self._asked: Counter[str] = Counter()
        """Requests of each namespace lately."""
        self._aged, self._turns, self._number = clock(), 0, 0
        self._best = self._best_before = math.inf
        """Quickest answer of this MEMORY_SECONDS and of the ones before."""
        self._began = self._eased = clock()

    @property
    def allowed(self) -> int:
        """Requests that may be under way now."""
        return int(self._allowed)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One request: waits for a place, and learns from how long the answer takes. Call `refused` inside it when the
        API server could not cope."""
        await self._enter()
        started = self._clock()
        try:
            yield
            if started >= self._eased:  # what was sent before the last step down says nothing new
                self._answered(self._clock() - started)
        finally:
            self._leave()

    def refused(self) -> None:
        """The API server said 429 or 5xx, or nothing at all."""
        self._ease(REFUSED)

    def _answered(self, seconds: float) -> None:
        now = self._clock()
        if now - self._began > MEMORY_SECONDS:
            self._began, self._best_before, self._best = now, self._best, math.inf
        self._best = min(self._best, seconds)
        late = max(LATE_SECONDS, LATE_FACTOR * min(self._best, self._best_before))
        if seconds <= late:
            self._allowed = min(float(MOST), self._allowed + 1.0 / self._allowed)
        else:
            self._ease(EASE)

    def _ease(self, part: float) -> None:
        self._allowed = max(float(FEWEST), self._allowed * part)
        self._eased = self._clock()

    async def _enter(self) -> None:
        namespace = _served.get()
        if self._busy < self.allowed and not self._waiting:
            self._take(namespace)
            return
        self._number += 1
        waiting = _Waiting(self._number, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(namespace, deque()).append(waiting)
        try:
            await waiting.place
        except asyncio.CancelledError:
            if waiting.place.done() and not waiting.place.cancelled():
                self._leave()  # it was ours already
            else:
                self._forget(namespace, waiting)
            raise

    def _leave(self) -> None:
        self._busy -= 1
        while self._waiting and self._busy < self.allowed:
            namespace = self._next()
            waiting = self._waiting[namespace][0]
            self._forget(namespace, waiting)
            if not waiting.place.done():
                self._take(namespace)
                waiting.place.set_result(None)

    def _next(self) -> str:
        self._turns += 1
        if self._turns % OLDEST_EACH == 0:
            return min(self._waiting, key=lambda namespace: self._waiting[namespace][0].number)
        return min(self._waiting, key=lambda namespace: (self._asked[namespace], self._waiting[namespace][0].number))

    def _take(self, namespace: str) -> None:
        self._busy += 1
        now = self._clock()
        if now - self._aged >= LATELY_SECONDS:
            self._asked = Counter({name: count // 2 for name, count in self._asked.items() if count > 1})
            self._aged = now
        self._asked[namespace] += 1

    def _forget(self, namespace: str, waiting: _Waiting) -> None:
        places = self._waiting.get(namespace, deque())
        if waiting in places:  # it may have been passed over already
            places.remove(waiting)
            if not places:
                del self._waiting[namespace]
