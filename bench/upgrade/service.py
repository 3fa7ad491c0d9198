"""What a Service is for the clients of pods: one address, behind which connections go to those that are ready."""

import asyncio
import contextlib
import threading
from collections import Counter
from types import TracebackType

CHUNK = 1 << 16


class Service:
    """Connections go to its endpoints in turns. What is open stays open when an endpoint is taken away, as kube-proxy
    has it. `connections` counts them by endpoint."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._endpoints: list[int] = []
        self._turn = 0
        self.connections: Counter[int] = Counter()
        self.url = ""

    def __enter__(self) -> "Service":
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._connected, "127.0.0.1", 0), self._loop)
        self.url = f"http://127.0.0.1:{server.result(30).sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def add(self, port: int) -> None:
        """One more endpoint of 127.0.0.1."""
        self._endpoints = [*self._endpoints, port]

    def remove(self, port: int) -> None:
        """New connections go elsewhere."""
        self._endpoints = [one for one in self._endpoints if one != port]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoints, self._turn = self._endpoints, self._turn + 1
        with contextlib.suppress(OSError):
            if endpoints:
                port = endpoints[self._turn % len(endpoints)]
                self.connections[port] += 1
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until it ends: the other side learns of the end at once."""
    with contextlib.suppress(OSError):
        while content := await reader.read(CHUNK):
            writer.write(content)
            await writer.drain()
    writer.close()
