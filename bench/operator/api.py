"""A bare aiohttp client of the API server: the floor that any operator's writes stand on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson

from learnloop_operator.kube.kinds import ResourceKind, kind_of
from testing.operators.api_access import authorization, from_kubeconfig, tls_of

T = TypeVar("T")
KubeObject = Mapping[str, Any]
MERGE = "application/merge-patch+json"
PARALLEL = 16
TRIES = 10


class Expired(Exception):
    """The resourceVersion that a watch was to begin at is too old."""


class Api:
    """JSON in, JSON out; anything but a success is an error."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = from_kubeconfig(kubeconfig)
        self._server, self._ssl = str(configuration.host), tls_of(configuration)
        self._headers = authorization(configuration)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Api":
        connector = aiohttp.TCPConnector(limit=64, ssl=self._ssl)
        timeout = aiohttp.ClientTimeout(total=60)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> Any:
        """One request; the answer as text when it is not JSON.

        Raises:
            RuntimeError: the API server refused.
        """
        assert self._session is not None
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type} if data else {}
        for _ in range(TRIES):
            async with self._session.request(
                method, self._server + path, data=data, headers=headers, params=query
            ) as response:
                text = await response.text()
            if response.status < 300:
                return orjson.loads(text) if text.startswith("{") else text
            if response.status != 429:
                break
            await asyncio.sleep(1.0)  # the storage of a new kind is being initialised
        raise RuntimeError(f"{method} {path}: {response.status} {text[-2000:]}")

    async def create(self, manifest: KubeObject) -> Any:
        """POST of a namespaced object or of a Namespace."""
        if manifest["kind"] == "Namespace":
            return await self.call("POST", "/api/v1/namespaces", manifest)
        return await self.call("POST", kind_of(manifest).path(manifest["metadata"]["namespace"]), manifest)

    async def merge(self, kind: ResourceKind, namespace: str, name: str, change: KubeObject, sub: str = "") -> Any:
        """JSON merge patch, of a subresource if given."""
        return await self.call("PATCH", kind.path(namespace, name, sub or None), change, MERGE)

    async def delete(self, kind: ResourceKind, namespace: str, name: str) -> Any:
        """DELETE."""
        return await self.call("DELETE", kind.path(namespace, name))

    async def list(self, kind: ResourceKind) -> tuple[list[dict[str, Any]], str]:
        """All objects of the cluster, and the collection's resourceVersion."""
        answer = await self.call("GET", kind.path(None))
        return answer["items"], answer["metadata"]["resourceVersion"]

    async def watch(self, kind: ResourceKind, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events after `version`, until the API server ends the watch.

        Raises:
            Expired: `version` is too old.
        """
        assert self._session is not None
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._server + kind.path(None), params=query, timeout=timeout) as response:
            if response.status == 410:
                raise Expired(await response.text())
            response.raise_for_status()
            # Lines by hand: aiohttp's own readline has a limit on their length.
            rest = b""
            async for part in response.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise Expired(str(event["object"].get("message")))
                    yield event["type"], event["object"]

    async def writes(self) -> int:
        """Writes the API server has served so far, Leases left out, by its own count."""
        return (await self.writes_and_renewals())[0]

    async def writes_and_renewals(self) -> tuple[int, int]:
        """Writes the API server has served so far, by its own count: to all but Leases, and to Leases."""
        return counted_writes(await self.call("GET", "/metrics"))


def counted_writes(metrics: str) -> tuple[int, int]:
    """Writes in an API server's `/metrics`: to all but Leases, and to Leases (anyone's, its own among them)."""
    others = leases = 0.0
    for line in metrics.splitlines():
        verb = line.partition('verb="')[2].partition('"')[0]
        if line.startswith("apiserver_request_total{") and verb in ("POST", "PUT", "PATCH", "DELETE", "APPLY"):
            served = float(line.rsplit(" ", 1)[1])
            if 'resource="leases"' in line:
                leases += served
            else:
                others += served
    return int(others), int(leases)


async def many(
    work: Callable[[T], Awaitable[Any]], items: Sequence[T], parallel: int = PARALLEL, over: float = 0.0
) -> float:
    """`work` on every item, at most `parallel` at a time, and evenly over `over` seconds; seconds it took."""
    started, rest = time.monotonic(), enumerate(items)

    async def worker() -> None:
        for number, item in rest:
            await asyncio.sleep(max(0.0, started + over * number / len(items) - time.monotonic()))
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(worker())
    return time.monotonic() - started
