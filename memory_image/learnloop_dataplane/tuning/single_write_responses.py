"""uvicorn's protocol, with what it writes for one answer sent in one go.

uvicorn writes head and body apart, and uvloop sends each at once: two system calls for an answer, which together take
a quarter of the processor time of a recall.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From the connection, or a request's first byte, to the end of its head."""


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


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools. A peer that says nothing, or not all of a request's head, is hung up on in time: it takes
    one of the connections that all tenants share."""

    _slow: asyncio.TimerHandle | None = None

    def on_message_begin(self) -> None:
        """A request begins: its head has so long."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._slow is None:
            self._slow = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _hang_up(self) -> None:
        self._slow = None
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wraps what answers are written to."""
        super().connection_made(transport)
        self._expect_head()
        self._answers = OneWrite(transport, self.loop)
        self.transport = self._answers  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        """Sends the answer now: in the loop's next turn it would wait for what others have worked out by then."""
        self._answers.send()
        super().on_response_complete()
