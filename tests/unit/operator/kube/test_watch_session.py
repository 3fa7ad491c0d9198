"""Kopf's session: a damaged watch ends before the damage, damaged lists are refused, whole answers pass untouched."""

import json
from collections.abc import AsyncIterator

import aiohttp
import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from learnloop_operator.kube import watch_session
from learnloop_operator.kube.watch_session import session_for

EVENT = b'{"type":"MODIFIED","object":{"metadata":{"name":"walker","resourceVersion":"7"}}}\n'
WATCH = {"watch": "true"}


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"code": code, "message": "why"}}, separators=(",", ":")).encode()


class Api:
    """Answers with `chunks`, one after another, and a proper end."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.status = 200
        self.cuts: list[str] = []
        self.url = ""
        self.session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for chunk in self.chunks:
            await response.write(chunk)
        await response.write_eof()
        return response

    async def watch(self) -> list[bytes]:
        async with self.session.get(self.url, params=WATCH) as response:
            return [chunk async for chunk in response.content.iter_chunked(1024 * 1024)]

    async def list(self) -> object:
        async with self.session.get(self.url) as response:
            return await response.json(content_type=None)


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(watch_session, "PAUSE_SECONDS", 0.0)
    api, app = Api(), web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    async with TestServer(app) as server:
        api.url = str(server.make_url("/apis/learnloop.dev/v1alpha1/trainingjobs"))
        async with session_for(kopf.ConnectionInfo(server=api.url), api.cuts.append).aiohttp_session as made:
            api.session = made
            yield api


@pytest.mark.parametrize(
    "damage",
    [EVENT[:30], EVENT[:-1], b"<html>502 Bad Gateway</html>\n", EVENT[:30] + b"\n", b'{"type":"ERROR","ob}\n'],
    ids=["half a line", "no end", "another page", "half a line with an end", "half an error"],
)
async def test_a_damaged_watch_ends_after_its_last_event(api: Api, damage: bytes) -> None:
    api.chunks = [EVENT, damage, EVENT if damage.endswith(b"\n") else b""]
    assert b"".join(await api.watch()) == EVENT
    assert api.cuts == ["trainingjobs"]


@pytest.mark.parametrize("code", [500, 504, 429])
async def test_an_error_in_a_watch_becomes_the_one_after_which_everything_is_listed_again(api: Api, code: int) -> None:
    api.chunks = [EVENT, error(code) + b"\n"]
    *_, line = b"".join(await api.watch()).splitlines()
    assert json.loads(line)["object"]["code"] == 410
    assert api.cuts == ["trainingjobs"]


async def test_half_a_list_is_a_connection_that_failed_and_is_tried_again(api: Api) -> None:
    api.chunks = [b'{"items": [{"metadata": {}}]}']
    assert await api.list() == {"items": [{"metadata": {}}]}
    api.chunks = [b'{"items": [{"metadata": {}']
    with pytest.raises(aiohttp.ClientConnectionError, match="26 bytes that are not whole JSON"):
        await api.list()
    assert api.cuts == ["trainingjobs"]


async def test_refused_credentials_are_recognised_in_a_new_session() -> None:
    first, again = (session_for(kopf.ConnectionInfo(server="http://127.0.0.1:9", token="a"), print) for _ in "12")
    other = session_for(kopf.ConnectionInfo(server="http://127.0.0.1:9", token="b"), print)
    assert first == again != other
    for session in (first, again, other):
        await session.aiohttp_session.close()
