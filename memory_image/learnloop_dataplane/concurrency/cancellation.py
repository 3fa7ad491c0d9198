"""Ending background work."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def cancel(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancels until every task has ended.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which asyncpg and nats-py use, swallows a cancellation that
    arrives together with the result it waited for.
    """
    pending = {task for task in tasks if task is not None and not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.25)
