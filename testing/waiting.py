"""Tests wait here for what others do, for a generous time: a machine may be busy."""

import asyncio
from collections.abc import Callable

from demo import waiting

SECONDS = 240.0


def until(happened: Callable[[], object]) -> None:
    waiting.until("it", lambda: happened() or None, SECONDS, every=0.05)


async def until_true(happened: Callable[[], object]) -> None:
    """The same in the event loop that the code under test runs in."""
    async with asyncio.timeout(SECONDS):
        while not happened():  # noqa: ASYNC110 - the condition is the state of the code under test
            await asyncio.sleep(0.01)
