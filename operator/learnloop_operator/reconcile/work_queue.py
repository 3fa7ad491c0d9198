"""Objects that need a pass: one queue, in which namespaces take turns."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """One custom resource: kind, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class WorkQueue:
    """Level-based: marking is cheap and idempotent, and an object marked during its pass gets another one.

    Each key waits at most once and is in at most one pass at a time. Namespaces take turns, so a backlog in one delays
    a key of another by one pass. Within a namespace the oldest key goes first.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[ObjectKey, None]] = OrderedDict()
        """Keys by namespace; the first namespace has the next turn, and none is empty."""
        self._busy: set[ObjectKey] = set()
        self._again: dict[ObjectKey, bool] = {}
        """Keys marked during their pass, and whether they go first."""
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._again)

    def mark(self, key: ObjectKey, *, first: bool = False) -> None:
        """The object needs a pass now; `first`: before all others, because users of an arm suffer meanwhile."""
        self._cancel(key)
        if key in self._busy:
            self._again[key] = first or self._again.get(key, False)
            return
        keys = self._waiting.setdefault(key.namespace, OrderedDict())
        keys.setdefault(key)
        if first:
            keys.move_to_end(key, last=False)
            self._waiting.move_to_end(key.namespace, last=False)
        self._filled.set()

    def mark_later(self, key: ObjectKey, seconds: float) -> None:
        """Mark in `seconds`; an earlier mark or timer wins."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        if not self._waits(key) and (key not in self._timers or self._timers[key].when() > due):
            self._cancel(key)
            self._timers[key] = asyncio.get_running_loop().call_at(due, self.mark, key)

    def comes_within(self, key: ObjectKey, seconds: float) -> bool:
        """The object waits for a pass, or its timer ends within `seconds`."""
        timer = self._timers.get(key)
        if timer is not None:
            return timer.when() <= asyncio.get_running_loop().time() + seconds
        return self._waits(key)

    async def take(self) -> ObjectKey:
        """Wait for a key; it is busy until `done`. Its timer is dropped: the pass sets the next one."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        namespace, keys = self._waiting.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._waiting[namespace] = keys  # behind the other namespaces
        self._busy.add(key)
        self._cancel(key)
        return key

    def done(self, key: ObjectKey) -> None:
        """The pass is over."""
        self._busy.discard(key)
        if key in self._again:
            self.mark(key, first=self._again.pop(key))

    def close(self) -> None:
        """Drop all timers."""
        for key in tuple(self._timers):
            self._cancel(key)

    def _waits(self, key: ObjectKey) -> bool:
        return key in self._again or key in self._waiting.get(key.namespace, ())

    def _cancel(self, key: ObjectKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
