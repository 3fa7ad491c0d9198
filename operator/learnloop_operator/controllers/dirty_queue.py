"""Which objects need a pass: each at most once in the queue, each at most in one pass at a time."""

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One custom resource: kind name, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class DirtyQueue:
    """Level-based work queue. Marking is cheap and idempotent; what was marked during a pass gets another one."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._queued) + len(self._again)

    def mark(self, key: Key) -> None:
        """The object may need something done: now."""
        self._cancel(key)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def mark_later(self, key: Key, seconds: float) -> None:
        """Mark in `seconds`, unless something marks it earlier; an earlier timer stays."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if key in self._queued or key in self._again or (timer is not None and timer.when() <= due):
            return
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_at(due, self.mark, key)

    async def take(self) -> Key:
        """Wait for a dirty object; it is busy until `done`. Its timer is dropped: the pass sets the next one."""
        key = await self._ready.get()
        self._queued.discard(key)
        self._busy.add(key)
        self._cancel(key)
        return key

    def done(self, key: Key) -> None:
        """The pass is over."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.mark(key)

    def close(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
