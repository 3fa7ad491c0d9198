"""Stands between operators and an API server and remembers who wrote what about an object, in the server's order."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from testing.operators.api_access import authorization, tls_of


@dataclass(frozen=True, slots=True)
class Landed:
    """A status that the API server took: by which process, for which generation of the spec, and what it decided."""

    version: int
    process: str
    generation: int
    decided: str


class Witness:
    """Forwards all that comes, one door for each process; `landed` are the statuses of ModelDeployments."""

    def __init__(self, behind: Configuration) -> None:
        self._behind = behind
        self.landed: list[Landed] = []
        self._session: aiohttp.ClientSession | None = None
        self._doors: list[web.AppRunner] = []

    async def door(self, process: str, kubeconfig: Path) -> None:
        """Listen for this process, and write the kubeconfig that leads it there."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._forward(process, request)

        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._doors.append(runner)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "witness",
            "clusters": [{"name": "witness", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
            "users": [{"name": "anonymous", "user": {}}],
            "contexts": [{"name": "witness", "context": {"cluster": "witness", "user": "anonymous"}}],
        }
        await asyncio.to_thread(kubeconfig.write_text, yaml.safe_dump(config))

    async def _forward(self, process: str, request: web.Request) -> web.StreamResponse:
        assert self._session is not None, "used inside `witness`"
        data = await request.read() or None
        headers = {key: value for key, value in request.headers.items() if key in ("Accept", "Content-Type")}
        url = f"{self._behind.host}{request.path_qs}"
        async with self._session.request(request.method, url, data=data, headers=headers) as answer:
            passed_on = {key: value for key, value in answer.headers.items() if key in ("Content-Type", "Retry-After")}
            if request.query.get("watch") != "true":
                body = await answer.read()
                if answer.status < 300 and data and request.path.endswith("/status"):
                    self._saw(process, json.loads(body))
                return web.Response(status=answer.status, body=body, headers=passed_on)
            response = web.StreamResponse(status=answer.status, headers=passed_on)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    def _saw(self, process: str, stored: dict[str, Any]) -> None:
        status = stored.get("status") or {}
        if stored.get("kind") == "ModelDeployment" and status.get("observedGeneration"):
            arms = {role: (status.get(role) or {}).get("revision") for role in ("stable", "canary")}
            decided = json.dumps([arms, status.get("step"), status.get("weight")])
            version = int(stored["metadata"]["resourceVersion"])
            self.landed.append(Landed(version, process, int(status["observedGeneration"]), decided))


def twice_decided(landed: Iterable[Landed]) -> set[int]:
    """Generations about which a process still wrote after another one had, or about which two did not decide alike.

    Who takes over may write about the generation it found, to add what was missing; not against it, and from then on
    alone.
    """
    ordered = sorted(landed, key=lambda item: item.version)
    decided, before = set[int](), set[str]()
    for process, group in itertools.groupby(ordered, key=lambda item: item.process):
        if process in before:
            decided |= {item.generation for item in group}
        before.add(process)
    for one, other in itertools.pairwise(ordered):
        if one.process != other.process and one.generation == other.generation and one.decided != other.decided:
            decided.add(one.generation)
    return decided


@asynccontextmanager
async def witness(behind: Configuration) -> AsyncIterator[Witness]:
    """One with its connections to `behind`; all doors are closed at the end."""
    made = Witness(behind)
    connector = aiohttp.TCPConnector(ssl=tls_of(behind), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=authorization(behind)) as session:
        made._session = session
        try:
            yield made
        finally:
            for runner in made._doors:
                await runner.cleanup()
