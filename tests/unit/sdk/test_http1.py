import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_sdk.transport.http1_client import BadResponse, Connection, ConnectionPool

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=1\r\nllo\r\n0\r\n\r\n"


class Server:
    """Answers every request with the next scripted bytes; an empty script closes the connection."""

    def __init__(self) -> None:
        self.script: list[bytes] = []
        self.connections = 0
        self.cut_at = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n{}") and self.script:
                answer = self.script.pop(0)
                for part in (answer[: self.cut_at], answer[self.cut_at :]):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def scripted() -> AsyncIterator[tuple[Server, Callable[[], object]]]:
    server = Server()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    pool = ConnectionPool()
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server, lambda: pool.post(url, "/x", b"{}")
    pool.close()
    listening.close()


async def test_one_connection_serves_many_requests(scripted: tuple[Server, Callable[[], object]]) -> None:
    server, post = scripted
    server.script = [PLAIN, CHUNKED, PLAIN]
    for cut in (0, 20, 60):
        server.cut_at = cut
        assert (await post()).body == b"hello"  # type: ignore[misc]
    assert server.connections == 1


async def test_a_connection_closed_while_idle_is_replaced(scripted: tuple[Server, Callable[[], object]]) -> None:
    server, post = scripted
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", PLAIN]
    assert (await post()).body == b""  # type: ignore[misc]
    assert (await post()).body == b"hello"  # type: ignore[misc]
    assert server.connections == 2


async def test_a_server_that_says_nothing_or_nonsense_is_an_os_error(
    scripted: tuple[Server, Callable[[], object]],
) -> None:
    server, post = scripted
    with pytest.raises(ConnectionError):
        await post()  # type: ignore[misc]
    for nonsense in (b"HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"):
        server.script = [nonsense]
        with pytest.raises(BadResponse):
            await post()  # type: ignore[misc]


@given(st.sampled_from([PLAIN, CHUNKED]), st.lists(st.integers(0, 100), max_size=6))
def test_an_answer_may_arrive_in_any_pieces(answer: bytes, cuts: list[int]) -> None:
    async def feed() -> bytes:
        connection = Connection()
        connection._waiter = waiter = asyncio.get_running_loop().create_future()
        edges = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
        for start, end in zip(edges, edges[1:], strict=False):  # noqa: RUF007
            connection.data_received(answer[start:end])
        return (await waiter).body

    assert asyncio.run(feed()) == b"hello"
