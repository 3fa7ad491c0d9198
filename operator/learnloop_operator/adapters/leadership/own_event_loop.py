"""An event loop on a thread of its own, for work that must not wait until another loop is free."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class OwnEventLoop:
    """Runs coroutines for another loop; `begin` is called first, on the thread itself.

    What belongs to a loop (clients, locks, events) is only to be touched by the coroutines that run here.
    """

    def __init__(self, name: str, begin: Callable[[], None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._begin = begin
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result or its exception; cancelling the wait cancels the coroutine, and does not wait for its end."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def stop(self) -> None:
        """End the thread; whatever still runs there is cut off."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    def _work(self) -> None:
        self._begin()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
