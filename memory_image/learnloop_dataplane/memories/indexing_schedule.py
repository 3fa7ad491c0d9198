"""When stored memories are indexed: at once, many at a time, and behind the batches that are being stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from learnloop_dataplane.concurrency import namespace_rounds

BULK_PAUSE_SECONDS = 0.1  # without another batch: then there is time to index
BULK_PAUSES = 40  # and after so many in any case; recall reads what waits from its queue meanwhile
BETWEEN_SECONDS = 0.02  # between two batches: stores that come together are indexed together


class IndexPace:
    """Knows the namespaces in which memories wait for the indexer.

    Args:
        index: handles what is pending in one namespace, as much as a turn has, and returns how much; it raises nothing.
    """

    def __init__(self, index: Callable[[str], Awaitable[int]]) -> None:
        self._index = index
        self._waiting: set[str] = set()
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
        """Indexes until cancelled; what another replica left behind is found by the sweep."""
        while True:
            await self._nudge.wait()
            self._nudge.clear()
            for _ in range(BULK_PAUSES):
                if time.monotonic() - self._bulk > BULK_PAUSE_SECONDS:
                    break
                await asyncio.sleep(BULK_PAUSE_SECONDS)
            todo, self._waiting = self._waiting, set()
            for namespace in sorted(todo):
                if await self._index(namespace) >= namespace_rounds.TURN:
                    self.stored(namespace)  # there may be more; the others come first
            await asyncio.sleep(BETWEEN_SECONDS)
