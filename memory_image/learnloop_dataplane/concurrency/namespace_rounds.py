"""Where there is work: at once where something happened, everywhere every so often."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

TURN = 2000
"""Rows that one step handles of a namespace before the others have their turn: no flood delays them for long."""


class Rounds:
    """Hands out namespaces.

    Args:
        namespaces: all there are.
        every: seconds between two rounds over all of them, however much happens in some meanwhile.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        namespaces: Callable[[], Awaitable[list[str]]],
        every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespaces = namespaces
        self._every = every
        self._clock = clock
        self._due = clock()
        self._new: set[str] = set()
        self._nudge = asyncio.Event()

    def changed(self, namespace: str) -> None:
        """Something happened there."""
        self._new.add(namespace)
        self._nudge.set()

    async def next(self) -> list[str]:
        """Waits for work; returns where it is, and first of all where something happened.

        Raises:
            Exception: whatever `namespaces` raises; nothing is taken off, the next call asks again.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._due - self._clock())):
                await self._nudge.wait()
        everywhere: list[str] = []
        if self._clock() >= self._due:
            everywhere = await self._namespaces()
            self._due = self._clock() + self._every
        self._nudge.clear()
        new, self._new = self._new, set()
        return sorted(new) + [namespace for namespace in everywhere if namespace not in new]
