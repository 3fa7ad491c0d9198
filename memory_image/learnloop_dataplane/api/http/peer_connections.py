"""How many connections each peer has open: one that opens them all leaves none to its neighbours."""

import asyncio
from collections import Counter

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
SENTENCE = (
    '{"error":{"field":null,"value":null,"message":"this address has %d connections open already, as many as one may '
    '(dataPlane.connectionsPerPeer of the chart); close some, or send requests over those that you have"}}'
)


def limited(protocol: type[HttpToolsProtocol], most: int) -> type[HttpToolsProtocol]:
    """The same protocol; a peer's connection above `most` is told so with a 429, and ended. 0: as many as it likes.

    Connections of one address are one peer's. Nobody asks what proxies in between have written into headers.
    """
    if not most:
        return protocol
    open_now: Counter[str] = Counter()
    sentence = (SENTENCE % most).encode()
    refusal = REFUSAL % (len(sentence), sentence)

    class Limited(protocol):  # type: ignore[valid-type, misc]
        _peer: str | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            """Counts it, and refuses one too many."""
            peername = transport.get_extra_info("peername")
            peer = str(peername[0]) if peername else ""
            super().connection_made(transport)
            if peer and open_now[peer] >= most:
                transport.write(refusal)
                transport.close()
                return
            self._peer = peer
            open_now[peer] += 1

        def connection_lost(self, exc: Exception | None) -> None:
            """Another one may come."""
            if self._peer is not None:
                open_now[self._peer] -= 1
                if not open_now[self._peer]:
                    del open_now[self._peer]
                self._peer = None
            super().connection_lost(exc)

    return Limited
