"""The part of Kubernetes' API that the operator, the data plane and the command line use, over HTTP on loopback."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from learnloop_api.crd.printer_columns import KINDS
from learnloop_local.store import CLUSTER_WIDE, SERVED, Change, Object, Refused, Store, matches
from learnloop_local.tokens import Issuer
from learnloop_operator.kube import kinds

WATCH_SECONDS, BOOKMARK_SECONDS = 300.0, 30.0
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
USER = "learnloop:local"
SHORT_NAMES = {kind.name: [kind.short_name] for kind in KINDS}
Locate = Callable[[str, str, str, str], str | None]
"""Address of a port: "services" or "pods", namespace, name, port; None where there is none."""
Log = Callable[[str, str], str]
"""The log of a pod, by namespace and name."""


class ApiServer:
    """Requests by TCP carry a token of the `issuer`'s for it; those by the socket, which only its owner opens, none."""

    def __init__(self, store: Store, issuer: Issuer, locate: Locate, log: Log) -> None:
        self._store, self._issuer, self._locate, self._log = store, issuer, locate, log
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self.url, self.tls_url = "", ""

    async def start(self, socket: str, tls: ssl.SSLContext) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        plain, secure = (address[1] for address in self._runner.addresses)
        self.url, self.tls_url = f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"
        await web.UnixSite(self._runner, socket).start()
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), auto_decompress=False)

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.transport is not None and request.transport.get_extra_info("peername"):
                scheme, _, token = request.headers.get("Authorization", "").partition(" ")
                if scheme != "Bearer" or not self._issuer.knows(token):
                    raise Refused(401, "Unauthorized", "give a bearer token of this API server")
            return await self._route(request)
        except Refused as error:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": error.code}
            return _json({**status, "reason": error.reason, "message": str(error)}, error.code)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case ["version"]:
                return _json({"major": "1", "minor": "35", "gitVersion": "v1.35.0-learnloop-local"})
            case ["api" | "apis"] | ["api", _] | ["apis", _, _]:
                return _json(discovered(parts))
            case ["openid", "v1", "jwks"]:
                return _json(self._issuer.keys())
            case [*_, ("selfsubjectreviews" | "selfsubjectaccessreviews" | "localsubjectaccessreviews") as review]:
                status = {"userInfo": {"username": USER}} if review == "selfsubjectreviews" else {"allowed": True}
                return _json({**await _body(request), "status": status}, 201)
            case ["api", "v1", "namespaces", namespace, "serviceaccounts", account, "token"]:
                wanted = (await _body(request)).get("spec") or {}
                token = self._issuer.token(namespace, account, wanted["audiences"][0], seconds=3600)
                return _json({"kind": "TokenRequest", "status": {"token": token}}, 201)
            case ["api", "v1", "namespaces", namespace, ("services" | "pods") as plural, target, "proxy", *rest]:
                return await self._forward(request, plural, namespace, target, "/".join(rest))
            case ["api", "v1", "namespaces", namespace, "pods", name, "log"]:
                return web.Response(text=self._log(namespace, name))
            case ["api", version, *rest]:
                return await self._objects(request, version, rest)
            case ["apis", group, version, *rest]:
                return await self._objects(request, f"{group}/{version}", rest)
        raise Refused(404, "NotFound", f"{request.path}: no such page on this machine's API server")

    async def _objects(self, request: web.Request, version: str, rest: list[str]) -> web.StreamResponse:
        namespace: str | None = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = SERVED.get((version, rest[0]))
        if kind is None:  # without a reason, by which the operator knows that the kind is not installed
            raise Refused(404, "", f"{version} {rest[0]}: this machine's API server has no such kind")
        query = request.query
        if len(rest) == 1 and request.method == "GET":
            selectors = namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
            if query.get("watch") in ("1", "true"):
                return await self._watch(request, kind, *selectors)
            about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
            metadata = {"resourceVersion": str(self._store.version)}
            return _json({**about, "metadata": metadata, "items": self._store.every(kind, *selectors)})
        body = await _body(request)
        if len(rest) == 1 and request.method == "POST":
            return _json(self._store.create(kind, namespace or "", body), 201)
        return _json(self._one(request, kind, namespace or "", rest[1:], body))

    def _one(
        self, request: web.Request, kind: kinds.ResourceKind, namespace: str, rest: list[str], body: Object
    ) -> Object:
        name, part = rest[0], "".join(rest[1:])
        match request.method:
            case "GET":
                return self._store.get(kind, namespace, name)
            case "PUT":
                return self._store.replace(kind, namespace, name, body, part)
            case "DELETE":
                return self._store.delete(kind, namespace, name, body.get("preconditions") or {})
            case "PATCH" if "apply-patch" in request.content_type:
                manager = request.query.get("fieldManager", "")
                return self._store.apply(kind, namespace, name, body, manager, part)
            case "PATCH" if "merge-patch" in request.content_type:
                return self._store.merge(kind, namespace, name, body, part)
        raise Refused(415, "UnsupportedMediaType", f"{request.method} {request.content_type}: send a merge patch")

    async def _watch(
        self, request: web.Request, kind: kinds.ResourceKind, namespace: str | None, labels: str, fields: str
    ) -> web.StreamResponse:
        since = request.query.get("resourceVersion") or "0"
        until = time.monotonic() + float(request.query.get("timeoutSeconds") or WATCH_SECONDS)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        with contextlib.suppress(aiohttp.ClientConnectionResetError):  # the client has what it wanted
            async for type_, body in self._events(kind, int(since), until):
                if type_ in ("BOOKMARK", "ERROR") or matches(body, namespace, labels, fields):
                    await answer.write(orjson.dumps({"type": type_, "object": body}) + b"\n")
        return answer

    async def _events(self, kind: kinds.ResourceKind, since: int, until: float) -> AsyncIterator[tuple[str, Object]]:
        """Objects as they are first, where the watch begins with no version."""
        if since == 0:
            since = self._store.version
            for item in self._store.every(kind):
                yield "ADDED", item
        while (left := until - time.monotonic()) > 0:
            news: tuple[int, list[Change]] | None = since, []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                    news = await self._store.changes(kind, since)
            if news is None:
                yield "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "list again"}
                return
            since, changes = news
            for change in changes:
                yield change.type, change.object
            metadata = {"resourceVersion": str(since)}
            yield "BOOKMARK", {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    async def _forward(
        self, request: web.Request, plural: str, namespace: str, target: str, path: str
    ) -> web.StreamResponse:
        name, _, port = target.removeprefix("http:").partition(":")
        address = self._locate(plural, namespace, name, port)
        if address is None or self._client is None:
            raise Refused(503, "ServiceUnavailable", f"{plural} {namespace}/{target}: nothing answers there")
        passed_on = {
            key: value for key, value in request.headers.items() if key.lower() not in ("authorization", "host")
        }
        url = f"http://{address}/{path}"
        try:
            async with self._client.request(
                request.method, url, params=request.query, headers=passed_on, data=await request.read()
            ) as response:
                body, status, form = await response.read(), response.status, response.headers.get("Content-Type", "")
                coding = response.headers.get("Content-Encoding")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Refused(503, "ServiceUnavailable", f"{url}: {error or 'no answer'}") from error
        headers = {"Content-Type": form} | ({"Content-Encoding": coding} if coding else {})
        return web.Response(body=body, status=status, headers=headers)


async def _body(request: web.Request) -> Object:
    content = await request.read()
    if not content:
        return {}
    try:
        body: Object = orjson.loads(content)
    except ValueError as error:
        raise Refused(400, "BadRequest", f"the body is not JSON: {error}") from error
    return body


def _json(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def discovered(parts: list[str]) -> Object:
    """The documents by which clients discover the kinds."""
    versions = sorted({version for version, _ in SERVED if "/" in version})
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = []
        for version in versions:
            group, _, short = version.partition("/")
            item = {"groupVersion": version, "version": short}
            groups.append({"name": group, "versions": [item], "preferredVersion": item})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = parts[1] if parts[0] == "api" else "/".join(parts[1:])
    listed = [
        {"name": plural, "singularName": kind.kind.lower(), "kind": kind.kind, "verbs": VERBS}
        | {"namespaced": kind not in CLUSTER_WIDE, "shortNames": SHORT_NAMES.get(kind.kind, [])}
        for (api_version, plural), kind in SERVED.items()
        if api_version == version
    ]
    if not listed:
        raise Refused(404, "NotFound", f"{version}: this machine's API server has no such group")
    return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
