"""Which objects need a pass: each at most once in the queue, each at most in one pass at a time."""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One custom resource: kind name, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


Group = tuple[str, str]
"""Kind and namespace."""

BACKGROUND_SHARE = 8
"""One in so many takes goes to the background while there is news."""


class Lane:
    """Keys in fair order: one kind in one namespace after the other, first come first served within each.

    A group that had nothing waiting is served before those that are being worked off, once: then it queues up with
    them, and keeps its place for one round even when it has nothing more, so that nobody gets ahead by coming back
    often. This is the order of flow queues in fq_codel (RFC 8290, section 4.2): in a flood, a namespace with a single
    change waits for the pass that is under way, not for its turn behind all others.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, OrderedDict[Key, None]] = {}
        self._fresh: deque[Group] = deque()
        self._turns: deque[Group] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: Key) -> None:
        """Last of its group."""
        name = (key.kind, key.namespace)
        if name not in self._groups:
            self._groups[name] = OrderedDict()
            self._fresh.append(name)
        self._groups[name][key] = None
        self._size += 1

    def remove(self, key: Key) -> None:
        """Not any more; the group keeps its place."""
        del self._groups[key.kind, key.namespace][key]
        self._size -= 1

    def pop(self) -> Key:
        """The first of the group whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        while True:
            name = (self._fresh or self._turns).popleft()
            group = self._groups[name]
            if group:
                self._turns.append(name)
                self._size -= 1
                return group.popitem(last=False)[0]
            del self._groups[name]


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
