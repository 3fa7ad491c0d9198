"""One answer on its way to a client, over ASGI."""

from starlette.types import Send


class Outgoing:
    """Headers once, then the body, whole or in pieces."""

    def __init__(self, send: Send, headers: dict[str, str] | None = None) -> None:
        self._send = send
        self.headers = headers or {}
        self.started = False
        self.status = 0

    async def whole(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """The whole answer."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        await self._start(status, {"content-type": kind, "content-length": str(len(body))} | self.headers | more)
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, kind: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        """The head of a stream."""
        # Proxies between here and the client must not wait for the end of it.
        plain = {"content-type": kind, "cache-control": "no-cache", "x-accel-buffering": "no"}
        await self._start(status, plain | self.headers)

    async def piece(self, body: bytes) -> None:
        """Some of the stream."""
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """The last of it."""
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        self.started, self.status = True, status
        listed = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})
