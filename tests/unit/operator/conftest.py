"""A tiny HTTP server for what a real API server cannot be asked to do: answer 429, hang, break off."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes_asyncio.client import Configuration

from learnloop_operator.kube.fenced_client import KubeClient

Script = list[Callable[[web.Request], Awaitable[web.Response]]]


class Wire:
    """Answers requests in the order of `script`, the last one forever; records the requests."""

    def __init__(self) -> None:
        self.script: Script = []
        self.requests: list[tuple[str, str, bytes]] = []
        self.url = ""

    def answer(self, status: int, body=None, headers: dict[str, str] | None = None) -> None:
        async def handler(_: web.Request) -> web.Response:
            return web.json_response(body if body is not None else {}, status=status, headers=headers)

        self.script.append(handler)

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs, await request.read()))
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", wire.handle)
    async with TestServer(app) as server:
        wire.url = str(server.make_url("")).rstrip("/")
        yield wire


@pytest.fixture
async def kube(wire: Wire) -> AsyncIterator[KubeClient]:
    client = KubeClient(Configuration(host=wire.url), timeout=60)
    yield client
    await client.close()
