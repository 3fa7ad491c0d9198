"""When stored memories are indexed: at once, many at a time, and behind the batches that are being stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from learnloop_dataplane.concurrency import loop

BULK_PAUSE_SECONDS = 0.1  # without another batch: then there is time to index
BULK_PAUSES = 40  # and after so many in any case; recall reads what waits from its queue meanwhile
BETWEEN_SECONDS = 0.02  # between two batches: stores that come together are indexed together
AT_ONCE = 4  # namespaces: one whose texts an embedder is slow with delays no other


class IndexPace:
    """Knows the namespaces in which memories wait for the indexer.

    Args:
        index: handles what is pending in one namespace, as much as a turn has, and returns how much; it raises nothing.
    """

    def __init__(self, index: Callable[[str], Awaitable[int]]) -> None:
        self._index = index
        self._waiting: set[str] = set()
        self._under_way: set[str] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._nudge = asyncio.Event()
        self._bulk = 0.0

    def bulk(self) -> None:
        """A batch of memories is being stored: the indexer lets it and those behind it pass."""
        self._bulk = time.monotonic()

    def stored(self, namespace: str) -> None:
        """Memories of this namespace wait."""
        self._waiting.add(namespace)
        self._nudge.set()

    async def run(self) -> None:
        """Indexes until cancelled; the sweep finds what another replica left behind."""
        async with asyncio.TaskGroup() as turns:
            while True:
                await self._nudge.wait()
                self._nudge.clear()
                for _ in range(BULK_PAUSES):
                    if time.monotonic() - self._bulk > BULK_PAUSE_SECONDS:
                        break
                    await asyncio.sleep(BULK_PAUSE_SECONDS)
                due = self._waiting - self._under_way
                self._waiting -= due
                self._under_way |= due
                for namespace in sorted(due):
                    turns.create_task(self._turn(namespace))
                await asyncio.sleep(BETWEEN_SECONDS)

    async def _turn(self, namespace: str) -> None:
        try:
            async with self._places:
                done = await self._index(namespace)
        finally:
            self._under_way.discard(namespace)
        if done >= loop.TURN or namespace in self._waiting:
            self.stored(namespace)  # there may be more; the others come first
