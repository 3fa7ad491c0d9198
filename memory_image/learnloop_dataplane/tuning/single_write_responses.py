"""uvicorn's protocol, with what it writes for one answer sent in one go.

uvicorn writes head and body apart, and uvloop sends each at once: two system calls for an answer, which together take
a quarter of the processor time of a recall. With the part `single-write-responses` off, uvicorn's own is used.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWrite:
    """A transport that sends in one go what was written of an answer; else the one it wraps.

    It sends when it is told to, and what nobody tells it to send in the event loop's next turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Takes what is to be sent; a body of many parts is held for one turn of the loop at most."""
        if not self._parts:
            self._loop.call_soon(self.send)
        self._parts.append(data)

    def close(self) -> None:
        """Sends what is left, and hangs up."""
        self.send()
        self._transport.close()

    def send(self) -> None:
        """Sends what was written since the last time."""
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.writelines(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class SingleWrites(HttpToolsProtocol):
    """HTTP/1.1 by httptools, an answer's head and body in one system call."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wraps what answers are written to."""
        super().connection_made(transport)
        self._answers = OneWrite(transport, self.loop)
        self.transport = self._answers  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        """Sends the answer now: in the loop's next turn it would wait for what others have worked out by then."""
        self._answers.send()
        super().on_response_complete()
