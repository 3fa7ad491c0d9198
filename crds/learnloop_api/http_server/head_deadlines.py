"""A peer that says nothing, or not all of a request's head, is hung up on: connections are all callers' own."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From the connection, or a request's first byte, to the end of its head."""


class HeadDeadlines(HttpToolsProtocol):
    """HTTP/1.1 by httptools; a request's head has `HEAD_SECONDS`."""

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
        """A connection begins: its first head has so long."""
        super().connection_made(transport)
        self._expect_head()
