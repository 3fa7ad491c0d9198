"""A reverse proxy before an API server that answers wrongly, late, or not at all, in an order fixed by a seed."""

import asyncio
import random
from collections import Counter

import aiohttp
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from testing.operators.api_access import tls_of

REFUSALS = {
    "conflict": (409, "Conflict", {}),
    "gone": (410, "Expired", {}),
    "too many": (429, "TooManyRequests", {"Retry-After": "1"}),
    "internal": (500, "InternalError", {}),
    "unavailable": (503, "ServiceUnavailable", {}),
}
FAULTS = (*REFUSALS, "reset before", "reset after", "truncated", "slow")
"""Refusals, and connections that break before the request arrives, after it was done, or in the answer."""
OF_WRITES, OF_READS = ("conflict",), ("gone",)
"""Answers that an API server gives to nothing else."""
APART = (5, 15)
"""Requests from one fault to the next."""
SLOW_SECONDS = 0.3


class FaultProxy:
    """Forwards to `behind`; of ten requests about one meets a fault. The kinds are dealt like cards, each once before
    any comes again, so that few faults hold all of them. `met` counts them."""

    def __init__(self, behind: Configuration, seed: int) -> None:
        self._behind, self._random = behind, random.Random(seed)
        self._deck: list[str] = []
        self._next = self._random.randint(*APART)
        self.met: Counter[str] = Counter()
        self.connection = behind
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    @property
    def missing(self) -> list[str]:
        """Kinds that no request has met yet."""
        return [kind for kind in FAULTS if not self.met[kind]]

    async def start(self) -> None:
        """Listen on the loopback; `connection` leads there."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls_of(self._behind)))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.connection = Configuration(host=f"http://127.0.0.1:{self._runner.addresses[0][1]}")

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self._dealt(request.method != "GET")
        if fault in REFUSALS:
            code, reason, headers = REFUSALS[fault]
            status = {"kind": "Status", "code": code, "reason": reason, "message": f"injected {fault}"}
            return web.json_response(status, status=code, headers=headers)
        if fault == "reset before":
            return _broken(request)
        if fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        code, body = await self._forward(request)
        if fault == "reset after":
            return _broken(request)
        return web.Response(status=code, body=body[: len(body) // 2] if fault == "truncated" else body)

    def _dealt(self, writes: bool) -> str:
        """The kind of fault that this request meets, or ""."""
        self._next -= 1
        if self._next > 0:
            return ""
        if not self._deck:
            self._deck = self._random.sample(FAULTS, len(FAULTS))
        fault = self._deck[-1]
        if (fault in OF_WRITES and not writes) or (fault in OF_READS and writes):
            return ""  # the next one that can meet it will
        self._next = self._random.randint(*APART)
        self.met.update([self._deck.pop()])
        return fault

    async def _forward(self, request: web.Request) -> tuple[int, bytes]:
        assert self._session is not None, "start() comes first"
        headers = {key: value for key, value in request.headers.items() if key in ("Accept", "Content-Type")}
        url = f"{self._behind.host}{request.path_qs}"
        data = await request.read()
        async with self._session.request(request.method, url, data=data, headers=headers) as answer:
            return answer.status, await answer.read()


def _broken(request: web.Request) -> web.StreamResponse:
    """The connection is gone; the response is lost."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
