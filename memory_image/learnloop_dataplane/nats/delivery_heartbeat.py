"""Telling NATS that messages are in hand, so that slowness is not taken for death."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from nats.aio.msg import Msg
from nats.errors import Error as NatsError


async def keep(messages: Sequence[Msg]) -> None:
    """Tells NATS that these are being worked on; an absent NATS is no reason to stop waiting for PostgreSQL."""
    for message in messages:
        with suppress(NatsError, OSError):
            await message.in_progress()


@asynccontextmanager
async def kept(messages: Sequence[Msg], interval: float) -> AsyncIterator[None]:
    """Keeps the messages in progress while something slow runs: a busy database must not look like a dead reader."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(interval)
            await keep(messages)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
