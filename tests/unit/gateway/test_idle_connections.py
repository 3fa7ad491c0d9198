"""A connection that a server closes while it is idle costs no turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from learnloop_gateway.arms import Forwarding, Unreachable
from learnloop_gateway.replies import Outgoing
from learnloop_gateway.upstream import ModelServer, UpstreamDown

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def closing(*, answers: Callable[[int, int], bool]) -> AsyncIterator[tuple[str, list[tuple[int, int]]]]:
    """A server that closes a connection in place of an answer; and the requests it saw, by connection and number."""
    seen: list[tuple[int, int]] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        connection, number = connections, 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
                number += 1
                seen.append((connection, number))
                if not answers(connection, number):
                    return
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", seen
    finally:
        server.close()


async def test_a_model_server_gets_each_request_by_a_connection_of_its_own() -> None:
    async with closing(answers=lambda connection, number: number == 1) as (url, seen):
        server = ModelServer(url)
        for _ in range(6):  # more often than failures in a row are borne
            assert await server.post("/v1/completions", {}) == {}
        await server.close()
    assert seen == [(connection, 1) for connection in range(1, 7)]


async def test_a_server_that_closes_a_new_connection_is_not_asked_again() -> None:
    async with closing(answers=lambda connection, number: False) as (url, seen):
        server = ModelServer(url)
        with pytest.raises(UpstreamDown):
            await server.post("/v1/completions", {})
        await server.close()
    assert seen == [(1, 1)]


class Client(Outgoing):
    """A client that keeps the bodies it gets."""

    def __init__(self) -> None:
        async def send(message: object) -> None:
            self.messages.append(message)

        self.messages: list[object] = []
        super().__init__(send)  # type: ignore[arg-type]


async def test_another_arms_gateway_gets_each_request_by_a_connection_of_its_own() -> None:
    async with closing(answers=lambda connection, number: number == 1) as (url, seen):
        forwarding = Forwarding(5.0, 5.0)
        for _ in range(2):
            await forwarding.forward(url, "/v1/chat/completions", {}, b"{}", Client())
        await forwarding.close()
    assert seen == [(1, 1), (2, 1)]


async def test_a_request_that_a_server_fails_on_keeps_it_open_for_others() -> None:
    async def answer(request: web.Request) -> web.Response:
        long = len(await request.read()) > 100
        return web.json_response({"error": "the input is too large"} if long else {}, status=500 if long else 200)

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    async with TestServer(app) as listening:
        server = ModelServer(str(listening.make_url("")).rstrip("/"))
        for _ in range(6):
            with pytest.raises(UpstreamDown, match="too large"):
                await server.post("/v1/completions", {"prompt": "x" * 100})
        assert await server.post("/v1/completions", {}) == {}
        await server.close()


async def test_another_arms_gateway_that_is_down_is_unreachable() -> None:
    async with closing(answers=lambda connection, number: False) as (url, _):
        forwarding = Forwarding(5.0, 5.0)
        with pytest.raises(Unreachable):
            await forwarding.forward(url, "/v1/chat/completions", {}, b"{}", Client())
        await forwarding.close()
