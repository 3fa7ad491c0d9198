"""A socket that says nothing, or not all of a request's head, does not hold a connection that others need."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from learnloop_api.http_server import head_deadlines
from learnloop_api.tuning_switches import VARIABLE
from learnloop_dataplane.api.http.head_deadlines import protocol


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(params=["", "single-write-responses"], ids=["tuned", "untuned"])
async def port(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[int]:
    monkeypatch.setattr(head_deadlines, "HEAD_SECONDS", 0.5)
    monkeypatch.setenv(VARIABLE, request.param)
    config = uvicorn.Config(hello, host="127.0.0.1", port=0, http=protocol(), lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


@pytest.mark.parametrize("said", [b"", b"G", b"GET / HTTP/1.1\r\nhost: a\r\n"])
async def test_who_does_not_finish_a_head_is_hung_up_on(port: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()


async def test_a_peer_between_two_requests_is_left_alone(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for pause in (1.0, 0.0):
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(pause)
    writer.close()
