"""How many requests may be under way at once: fewer when the API server gets slower, as TCP does it.

Requests in flight beyond what the API server can work on only wait there, in front of everybody's watches and writes,
our own among them. So their number follows what comes back (additive increase, multiplicative decrease: Chiu and Jain
1989): each answer in good time earns a part of a place, a late one, a 429 or none at all costs places.

Who waits for a place waits behind at most one request of each other namespace (round robin: Nagle, RFC 970), so
that a pass that asks for dozens of objects at once does not hold up everybody else's.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

FEWEST, MOST = 4, 32
"""Requests at once. The fewest are enough to keep two cores of an API server busy."""
LATE_SECONDS = 0.1
"""No answer within this time is late, however quick the best one was."""
LATE_FACTOR = 4.0
"""Late is what took so many times as long as the quickest answer lately: a distant API server is not a busy one."""
EASE, REFUSED = 0.8, 0.5
"""What is left of the places after a late answer, and after a refusal."""
MEMORY_SECONDS = 60.0

_served: ContextVar[str] = ContextVar("served", default="")


@contextmanager
def on_behalf_of(namespace: str) -> Iterator[None]:
    """Requests made inside, and by tasks begun inside, take turns with those made for other namespaces. What is made
    outside of any counts as one namespace more."""
    before = _served.set(namespace)
    try:
        yield
    finally:
        _served.reset(before)


class Pace:
    """Places for requests; namespaces take turns at them, and the requests of one are served in order."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowed = float(MOST)
        self._busy = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By namespace, the next to have its turn first; none is empty."""
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
        if self._busy < self.allowed and not self._waiting:
            self._busy += 1
            return
        place, namespace = asyncio.get_running_loop().create_future(), _served.get()
        self._waiting.setdefault(namespace, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # it was ours already
            else:
                self._forget(namespace, place)
            raise

    def _leave(self) -> None:
        self._busy -= 1
        while self._waiting and self._busy < self.allowed:
            namespace, places = self._waiting.popitem(last=False)
            place = places.popleft()
            if places:
                self._waiting[namespace] = places  # at the end of the round
            if not place.done():
                self._busy += 1
                place.set_result(None)

    def _forget(self, namespace: str, place: asyncio.Future[None]) -> None:
        places = self._waiting.get(namespace, deque())
        if place in places:  # it may have been passed over already
            places.remove(place)
            if not places:
                del self._waiting[namespace]
