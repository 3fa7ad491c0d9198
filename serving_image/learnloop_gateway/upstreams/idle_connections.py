"""A POST that is sent once more where the kept-alive connection it took was closed by the server in that moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp

CLOSED = (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError, aiohttp.ClientOSError)


def noting_reuse() -> aiohttp.TraceConfig:
    """For a session: `posted` learns whether a request took a connection that had been idle."""

    async def note(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        context.trace_request_ctx["reused"] = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace


@asynccontextmanager
async def posted(session: aiohttp.ClientSession, url: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a POST; raises as aiohttp does."""
    async with await _answered(session, url, options) as answer:
        yield answer


async def _answered(session: aiohttp.ClientSession, url: str, options: dict[str, Any]) -> aiohttp.ClientResponse:
    while True:
        taken: dict[str, bool] = {}
        try:
            return await session.post(url, trace_request_ctx=taken, **options)
        except CLOSED as error:
            # Each closed connection leaves the pool, so this ends with a new one.
            if not taken.get("reused") or isinstance(error, aiohttp.ClientConnectorError):
                raise
