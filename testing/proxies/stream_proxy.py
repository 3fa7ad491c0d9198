"""A reverse proxy between one operator process and an API server: it counts writes, holds them, and spoils watches."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from testing.operators.api_access import tls_of

READS = ("GET", "HEAD")
HELD_BACK_SECONDS = 0.3
PASSING = ("dropped", "gone", "twice", "reordered")
"""Faults of a watch that Kopf lives with by itself."""
BROKEN = ("truncated", "garbled", "failed")
"""Half a line and then a proper end; a line that is not an event; an error of the server's that is not 410."""
FAILED = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcdserver: leader changed"}
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

Write = Callable[[int, str, str, str], Awaitable[None]]
"""Told of a write: its number from 1, "before" or "after", the method and the path."""


class Cut(Exception):
    """The connection ends here, without a word."""


async def let_pass(number: int, side: str, method: str, path: str) -> None:
    """Nothing happens to this write."""


class StreamProxy:
    """Forwards to `behind`. `writes` are those of the operator, Leases aside."""

    def __init__(self, behind: Configuration, seed: int = 0) -> None:
        self._behind, self._random = behind, random.Random(seed)
        self.faults: tuple[str, ...] = ()
        """The faults that watches meet in turns, each after one to three events."""
        self.once: dict[str, str] = {}
        """By plural: the fault that the next event of that kind meets."""
        self._stalled: dict[str, asyncio.Event] = {}
        self.met: Counter[str] = Counter()
        self.writes: list[str] = []
        self.bodies: list[bytes] = []
        self.answers: dict[int, int] = {}
        """HTTP status by number of the write."""
        self.on_write: Write = let_pass
        self.on_read: Write = let_pass
        """As `on_write`, before a read other than a watch; the number is that of the last write."""
        self._met_in_turn = 0
        self._reads: dict[str, tuple[int, bytes]] = {}
        self._past: dict[str, tuple[int, bytes]] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, kubeconfig: Path) -> None:
        """Listen on the loopback, and write a kubeconfig that leads there."""
        connector = aiohttp.TCPConnector(ssl=tls_of(self._behind), limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        server = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "anonymous", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anonymous"}}],
        }
        kubeconfig.write_text(yaml.safe_dump(config))

    async def stop(self) -> None:
        """Stop listening; what is open is cut."""
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def stall(self, plural: str) -> None:
        """From now on the watches of that kind say nothing more, and do not end."""
        self._stalled[plural] = asyncio.Event()

    async def remember(self) -> None:
        """Keep what each read so far would be answered now, for `go_back`."""
        assert self._session is not None, "start() comes first"
        for path in self._reads:
            async with self._session.get(f"{self._behind.host}{path}") as answer:
                self._reads[path] = answer.status, await answer.read()

    def go_back(self) -> None:
        """The next read of each path gets the answer that was kept: that of an API server that is behind."""
        self._past = {path: answer for path, answer in self._reads.items() if answer[1]}

    def wake(self, *, new_only: bool = False) -> None:
        """Every watch speaks again; `new_only`: those opened from now on."""
        for awake in () if new_only else self._stalled.values():
            awake.set()
        self._stalled.clear()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except (Cut, aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        if "/leases" in request.path:
            return await self._forward(request)
        if request.method in READS:
            await self.on_read(len(self.writes), "before", request.method, request.path)
            if old := self._past.pop(request.path_qs, None):
                self.met.update(["past"])
                return web.Response(status=old[0], body=old[1], content_type="application/json")
            self._reads.setdefault(request.path_qs, (0, b""))
            return await self._forward(request)
        return await self._write(request)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        self.writes.append(f"{request.method} {request.path.split('/namespaces/')[-1].split('/', 1)[-1]}")
        self.bodies.append(await request.read())
        number = len(self.writes)
        await self.on_write(number, "before", request.method, request.path)
        answer = await self._forward(request)
        self.answers[number] = answer.status
        await self.on_write(number, "after", request.method, request.path)
        return answer

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None, "start() comes first"
        url, data = f"{self._behind.host}{request.path_qs}", await request.read() or None
        async with self._session.request(request.method, url, data=data, headers=_headers(request)) as answer:
            passed_on = {key: value for key, value in answer.headers.items() if key in ("Content-Type", "Retry-After")}
            return web.Response(status=answer.status, body=await answer.read(), headers=passed_on)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None, "start() comes first"
        plural = request.path.rsplit("/", 1)[-1]
        async with self._session.get(f"{self._behind.host}{request.path_qs}", headers=_headers(request)) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
            await response.prepare(request)
            async for line in self._spoiled(plural, _lines(answer.content), response):
                await response.write(line)
            await response.write_eof()
        return response

    async def _spoiled(
        self, plural: str, lines: AsyncIterator[bytes], response: web.StreamResponse
    ) -> AsyncIterator[bytes]:
        wait = self._random.randint(1, 3)
        async for line in lines:
            if awake := self._stalled.get(plural):
                self.met.update(["stalled"])
                await awake.wait()
            wait, now = wait - 1, self.once.pop(plural, "")
            if not now and not wait and self.faults:
                now, wait = self.faults[self._met_in_turn % len(self.faults)], self._random.randint(1, 3)
                self._met_in_turn += 1
            self.met.update([now] if now else [])
            if now == "dropped":
                raise Cut
            if now == "gone":
                yield json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"
                return
            if now in BROKEN:
                error = json.dumps({"type": "ERROR", "object": FAILED}, separators=(",", ":")).encode()
                half, page = line[: len(line) // 2], b"<html>502 Bad Gateway</html>"
                yield {"truncated": half, "garbled": page + b"\n", "failed": error + b"\n"}[now]
                return
            if now == "reordered":
                late = asyncio.create_task(_later(response, line))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
            else:
                yield line * (2 if now == "twice" else 1)


def _headers(request: web.Request) -> dict[str, str]:
    return {key: value for key, value in request.headers.items() if key in ("Accept", "Content-Type", "User-Agent")}


async def _later(response: web.StreamResponse, line: bytes) -> None:
    """Behind the events that come in the meantime."""
    await asyncio.sleep(HELD_BACK_SECONDS)
    with contextlib.suppress(ConnectionError):
        await response.write(line)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of any length: a StreamReader's own iteration refuses those above 128 KiB."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
