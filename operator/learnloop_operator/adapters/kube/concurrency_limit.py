"""How many requests may be under way at once: fewer when the API server gets slower, as TCP does it.

Requests in flight beyond what the API server can work on only wait there, in front of everybody's watches and writes,
our own among them. So their number follows what comes back (additive increase, multiplicative decrease: Chiu and Jain
1989): each answer in good time earns a part of a place, a late one, a 429 or none at all costs places.

A pass is *quiet* when no other news of its namespace waited when it began. What it asks for goes first, and RESERVED
places are kept for it beyond those that the others may take: it waits for no flood, of however many namespaces, even
where the API server answers so slowly that a change a second is more than anybody's share. A pass that is *first* (an
arm is in breach) is quiet, and goes before all that are no more than that. Otherwise who waits goes
before the namespaces that have asked for more of late (decay-usage scheduling: Hellerstein 1993). One place in four
goes to the request that has waited longest, whoever's it is: one with m before it waits for no more than 4 (m + 1).
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
RESERVED = 2
"""Places beyond those allowed, for quiet passes only."""


@dataclass(frozen=True, slots=True)
class _Flow:
    """Whose requests these are; those of one flow are served in order."""

    namespace: str = ""
    quiet: bool = False
    first: bool = False


_NOBODY = _Flow()
_served: ContextVar[_Flow] = ContextVar("served", default=_NOBODY)


@contextmanager
def on_behalf_of(namespace: str, *, quiet: bool = False, first: bool = False) -> Iterator[None]:
    """Requests made inside, and by tasks begun inside, are this namespace's; `quiet`: they go before those that are
    not; `first`: before these, too. What is made outside of any counts as one namespace more."""
    before = _served.set(_Flow(namespace, quiet or first, first))
    try:
        yield
    finally:
        _served.reset(before)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A request; the one with the lower number came first."""

    number: int
    place: asyncio.Future[bool]
    """Done when there is one: whether it is a reserved one."""


class ConcurrencyLimit:
    """Places for requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowed = float(MOST)
        self._busy = self._reserved = 0
        """Requests under way, in ordinary and in reserved places."""
        self._waiting: dict[_Flow, deque[_Waiting]] = {}
        """Each in order; none is empty."""
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
        reserved = await self._enter()
        started = self._clock()
        try:
            yield
            if started >= self._eased:  # what was sent before the last step down says nothing new
                self._answered(self._clock() - started)
        finally:
            self._leave(reserved)

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

    async def _enter(self) -> bool:
        flow = _served.get()
        if self._busy < self.allowed and not self._waiting:
            return self._take(flow)
        if flow.quiet and self._reserved < RESERVED:
            return self._take(flow, reserved=True)
        self._number += 1
        waiting = _Waiting(self._number, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(flow, deque()).append(waiting)
        try:
            return await waiting.place
        except asyncio.CancelledError:
            if waiting.place.done() and not waiting.place.cancelled():
                self._leave(waiting.place.result())  # it was ours already
            else:
                self._forget(flow, waiting)
            raise

    def _leave(self, reserved: bool) -> None:
        if reserved:
            self._reserved -= 1
        else:
            self._busy -= 1
        while self._waiting and self._busy < self.allowed:
            self._turns += 1
            oldest = self._turns % OLDEST_EACH == 0
            self._serve(min(self._waiting, key=self._since if oldest else self._rank))
        while self._reserved < RESERVED and (quiet := [flow for flow in self._waiting if flow.quiet]):
            self._serve(min(quiet, key=self._rank), reserved=True)

    def _serve(self, flow: _Flow, *, reserved: bool = False) -> None:
        waiting = self._waiting[flow][0]
        self._forget(flow, waiting)
        if not waiting.place.done():
            waiting.place.set_result(self._take(flow, reserved=reserved))

    def _since(self, flow: _Flow) -> int:
        return self._waiting[flow][0].number

    def _rank(self, flow: _Flow) -> tuple[bool, bool, int, int]:
        return not flow.first, not flow.quiet, self._asked[flow.namespace], self._since(flow)

    def _take(self, flow: _Flow, *, reserved: bool = False) -> bool:
        if reserved:
            self._reserved += 1
        else:
            self._busy += 1
        now = self._clock()
        if now - self._aged >= LATELY_SECONDS:
            self._asked = Counter({name: count // 2 for name, count in self._asked.items() if count > 1})
            self._aged = now
        self._asked[flow.namespace] += 1
        return reserved

    def _forget(self, flow: _Flow, waiting: _Waiting) -> None:
        places = self._waiting.get(flow, deque())
        if waiting in places:  # it may have been passed over already
            places.remove(waiting)
            if not places:
                del self._waiting[flow]
