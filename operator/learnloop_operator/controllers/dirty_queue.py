"""Which objects need a pass: each at most once in the queue, each at most in one pass at a time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One custom resource: kind name, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


BACKGROUND_SHARE = 8
"""One in so many takes goes to the background while there is news."""
QUIET_SHARE = 4
"""One in so many takes goes to a quiet namespace while there is one."""
QUIET_SECONDS = 0.5
"""Quiet is who had no pass for so long and has one object waiting."""


class Flow:
    """What waits in one namespace: one kind after the other, first come first served within each."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()
        self._size = 0
        self.finish = 0
        """Virtual time at which its last turn ends."""
        self.served = float("-inf")
        """When it last had a turn, in seconds."""
        self.ticket = 0
        """Its place in the line; 0 for none."""

    def __len__(self) -> int:
        return self._size

    def add(self, key: Key) -> None:
        """Last of its kind."""
        self._kinds.setdefault(key.kind, OrderedDict())[key] = None
        self._size += 1

    def remove(self, key: Key) -> None:
        """Not any more."""
        keys = self._kinds[key.kind]
        del keys[key]
        self._size -= 1
        if not keys:
            del self._kinds[key.kind]

    def pop(self) -> Key:
        """The first of the kind whose turn it is."""
        kind, keys = next(iter(self._kinds.items()))
        key = keys.popitem(last=False)[0]
        self._size -= 1
        if keys:
            self._kinds.move_to_end(kind)
        else:
            del self._kinds[kind]
        return key


class Lane:
    """Keys in fair order: one namespace after the other, and in each one kind after the other.

    Start-time fair queueing (Goyal, Vin and Cheng 1996): a turn starts at the virtual time that is now, or where the
    namespace's last one ended if that is later, and lasts one; the earliest start goes first. So a namespace that asks
    for less than its share waits for the passes under way and for nobody's backlog, each time and not only the first;
    and nobody gets ahead by coming back often. The share is of a namespace, not of a kind in it: five kinds in a
    namespace are no five tenants.

    On a starved machine a round of fifty namespaces may take ten seconds, and one change a second is then more than a
    share. So one turn in QUIET_SHARE is kept for those who have a single object waiting and had no turn for a while.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flows: dict[str, Flow] = {}
        self._line: list[tuple[int, bool, int, str]] = []
        """Heap of start, whether it continues a backlog, ticket, namespace."""
        self._quiet: OrderedDict[str, None] = OrderedDict()
        self._now = self._tickets = self._size = self._turns = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: Key) -> None:
        """Last of its kind in its namespace."""
        flow = self._flows.setdefault(key.namespace, Flow())
        flow.add(key)
        self._size += 1
        if not flow.ticket:
            self._queue_up(key.namespace, flow, backlog=False)
        if len(flow) == 1 and self._clock() - flow.served >= QUIET_SECONDS:
            self._quiet[key.namespace] = None
        else:
            self._quiet.pop(key.namespace, None)

    def remove(self, key: Key) -> None:
        """Not any more; the namespace keeps its place."""
        flow = self._flows[key.namespace]
        flow.remove(key)
        self._size -= 1
        if not flow:
            self._quiet.pop(key.namespace, None)

    def pop(self) -> Key:
        """The first of the namespace whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        self._turns += 1
        namespace = self._first_quiet() if self._turns % QUIET_SHARE == 0 and self._quiet else self._first_in_line()
        flow = self._flows[namespace]
        key = flow.pop()
        self._size -= 1
        self._quiet.pop(namespace, None)
        flow.finish, flow.served, flow.ticket = max(self._now, flow.finish) + 1, self._clock(), 0
        if flow:
            self._queue_up(namespace, flow, backlog=True)
        if not self._size:
            self._forget()
        return key

    def _first_quiet(self) -> str:
        return next(iter(self._quiet))  # its ticket is void with its turn

    def _first_in_line(self) -> str:
        while True:
            start, _, ticket, namespace = heappop(self._line)
            flow = self._flows[namespace]
            if ticket != flow.ticket:
                continue
            if flow:
                self._now = start
                return namespace
            flow.ticket = 0

    def _queue_up(self, namespace: str, flow: Flow, *, backlog: bool) -> None:
        self._tickets += 1
        flow.ticket = self._tickets
        heappush(self._line, (max(self._now, flow.finish), backlog, flow.ticket, namespace))

    def _forget(self) -> None:
        # Nobody waits, so nobody is owed anything; nor is a namespace remembered for ever.
        self._flows.clear()
        self._line.clear()
        self._now = 0


class DirtyQueue:
    """Level-based work queue. Marking is cheap and idempotent; what was marked during a pass gets another one.

    Two lanes: news (someone changed something) goes before the background (resync, the echo of our own writes), which
    still gets its share. In each lane a namespace with a thousand dirty objects makes one with a single one wait for
    one pass, not for a thousand.
    """

    def __init__(self) -> None:
        self._waiting = asyncio.Semaphore(0)
        self._lanes = {True: Lane(), False: Lane()}
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
            self._lanes[False].remove(key)
            self._lanes[True].add(key)
            self._queued[key] = True

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
        first = background if self._taken % BACKGROUND_SHARE == 0 else news
        return (first or news or background).pop()

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
