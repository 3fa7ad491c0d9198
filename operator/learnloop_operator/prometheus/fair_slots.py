"""Slots that tenants share: however many one of them waits for, another that comes gets one soon."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    """So many slots. A tenant gets one while it holds fewer than are free. So one alone takes no more than half of
    them, a second half of the rest, and so on (dynamic thresholds, Choudhury and Hahne 1998, with a factor of 1). Of
    those that wait the one that holds least is first."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """One slot, waited for in the order in which the tenant asked."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            # A future that was cancelled while it waited never had a slot.
            if granted.done() and not granted.cancelled():
                self._free += 1
                self._held[tenant] -= 1
                if not self._held[tenant]:
                    del self._held[tenant]
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            tenant = min(self._waiting, key=self._held.__getitem__)
            queue = self._waiting[tenant]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._waiting[tenant]
            elif self._held[tenant] < self._free:
                queue.popleft().set_result(None)
                self._free -= 1
                self._held[tenant] += 1
            else:
                return
