"""A few places for the work of all namespaces: none of them takes the last one, and who has fewest comes next."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """What costs the processor, or a server, of everybody. Use from one event loop at a time.

    Args:
        at_once: how many places there are. With more than one, a namespace has all but one of them at most: so the
            first that another one asks for is free at once.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._most = max(1, at_once - 1)
        self._taken: Counter[str] = Counter()
        # Who was served last is behind all others that have as many places.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a place, and keeps it meanwhile."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(namespace)
            else:
                self._forget(namespace, turn)
            raise
        try:
            yield
        finally:
            self._give_back(namespace)

    def _hand_out(self) -> None:
        while self._free:
            able = [namespace for namespace in self._waiting if self._taken[namespace] < self._most]
            if not able:
                return
            namespace = min(able, key=self._taken.__getitem__)  # of several the first, who has waited longest
            turn = self._waiting[namespace].popleft()
            if self._waiting[namespace]:
                self._waiting.move_to_end(namespace)
            else:
                del self._waiting[namespace]
            if turn.done():
                continue
            self._free -= 1
            self._taken[namespace] += 1
            turn.set_result(None)

    def _give_back(self, namespace: str) -> None:
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        self._hand_out()

    def _forget(self, namespace: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(namespace)
        if queue and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[namespace]
