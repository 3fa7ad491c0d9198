"""A connection that a server closes while it is idle costs no turn."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from learnloop_gateway.arms import Forwarding, Unreachable
from learnloop_gateway.model_servers import ModelServer, UpstreamDown
from learnloop_gateway.replies import Outgoing

PATH = "/v1/completions"


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[tuple[str, list]]:
    """A server's address, and the connection of each request that it got."""
    requests = []

    async def serve(request: web.Request) -> web.Response:
        requests.append(request.transport.get_extra_info("peername"))
        return await answer(request)

    app = web.Application()
    app.router.add_post(PATH, serve)
    async with TestServer(app) as listening:
        yield str(listening.make_url("")).rstrip("/"), requests


async def answering(_: web.Request) -> web.Response:
    return web.json_response({})


async def closing(request: web.Request) -> web.Response:
    request.transport.abort()
    return web.Response()


async def failing(request: web.Request) -> web.Response:
    long = len(await request.read()) > 100
    return web.json_response({"error": "the input is too large"} if long else {}, status=500 if long else 200)


async def test_model_servers_and_other_arms_get_each_request_by_a_connection_of_its_own() -> None:
    async with serving(answering) as (url, requests):
        server, forwarding = ModelServer(url), Forwarding(5.0, 5.0)
        for _ in range(3):
            assert await server.post(PATH, {}) == {}
            await forwarding.forward(url, PATH, {}, b"{}", Outgoing(AsyncMock()))
        await server.close()
        await forwarding.close()
    assert len(set(requests)) == 6


async def test_what_closes_a_new_connection_is_not_asked_again() -> None:
    async with serving(closing) as (url, requests):
        server, forwarding = ModelServer(url), Forwarding(5.0, 5.0)
        with pytest.raises(UpstreamDown):
            await server.post(PATH, {})
        with pytest.raises(Unreachable):
            await forwarding.forward(url, PATH, {}, b"{}", Outgoing(AsyncMock()))
        await server.close()
        await forwarding.close()
    assert len(requests) == 2


async def test_a_request_that_a_server_fails_on_keeps_it_open_for_others() -> None:
    async with serving(failing) as (url, _):
        server = ModelServer(url)
        for _ in range(6):  # more often than failures in a row are borne
            with pytest.raises(UpstreamDown, match="too large"):
                await server.post(PATH, {"prompt": "x" * 100})
        assert await server.post(PATH, {}) == {}
        await server.close()
