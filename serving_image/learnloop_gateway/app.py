"""The HTTP interface of a gateway: one ASGI application."""

import asyncio
from collections.abc import Awaitable

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_common.http_server import encoding_problem
from learnloop_gateway.gateway import CHAT, Gateway, refused
from learnloop_gateway.replies import ApiError, Outgoing, of_refusal

EPISODES = "/v1/episodes"
MODELS = "/v1/models"
MOST_BYTES = 8 * 2**20


def build_app(gateway: Gateway) -> ASGIApp:
    """The whole gateway."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        out = Outgoing(send)
        try:
            if scope["method"] == "POST":
                await _post(gateway, scope, receive, out)
            elif scope["method"] in ("GET", "HEAD"):
                await _get(gateway, scope["path"], out)
            else:
                raise ApiError(405, f"{scope['method']} is not served here")
        except Exception as error:  # a request that fails must not end the gateway
            failure = refused(error)
            if out.started:
                return
            more = {"retry-after": str(failure.retry_after)} if failure.retry_after else {}
            out.headers |= more | ({"connection": "close"} if gateway.draining else {})
            await out.whole(failure.status, failure.to_json())

    return app


async def _get(gateway: Gateway, path: str, out: Outgoing) -> None:
    if path == "/healthz":
        await out.whole(200, b'{"status":"ok"}')
    elif path == "/readyz":
        missing = "draining" if gateway.draining else "model server or routing table not there yet"
        status = {"status": "ok" if gateway.ready else missing}
        await out.whole(200 if gateway.ready else 503, orjson.dumps(status))
    elif path == "/metrics":
        await out.whole(200, gateway.metrics.render(), gateway.metrics.content_type)
    elif path == MODELS:
        await out.whole(200, orjson.dumps({"object": "list", "data": gateway.models()}))
    elif path.startswith(f"{MODELS}/"):
        result = next((model for model in gateway.models() if model["id"] == path[len(MODELS) + 1 :]), None)
        if result is None:
            raise ApiError(404, f"model: {path[len(MODELS) + 1 :][:80]!r} is not served here", code="model_not_found")
        await out.whole(200, orjson.dumps(result))
    else:
        raise ApiError(404, f"{path[:200]}: nothing is served there")


async def _post(gateway: Gateway, scope: Scope, receive: Receive, out: Outgoing) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    authorization = headers.get("authorization", "").encode("latin-1")
    if refusal := await gateway.callers.refusal(authorization):
        gateway.metrics.strangers[refusal.reason].inc()
        raise of_refusal(refusal)
    if problem := encoding_problem(scope["headers"]):
        raise ApiError(415, problem, code="unsupported_encoding")
    path = scope["path"]
    body = await _read(receive)
    if path == CHAT:
        await _unless_gone(gateway.complete(headers, body, out), receive)
    elif path == EPISODES:
        await gateway.open(headers, out)
    elif path.startswith(f"{EPISODES}/") and path.endswith("/end"):
        await gateway.end(path[len(EPISODES) + 1 : -len("/end")], headers, body, out)
    else:
        raise ApiError(404, f"{path[:200]}: nothing is served there")


async def _unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Do `work` until it is done or the client disconnects."""
    answering = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not answering.done():
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    if not answering.cancelled():
        answering.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read(receive: Receive) -> bytes:
    """The body; raises ApiError 413."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "the client went away")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise ApiError(413, f"body: longer than {MOST_BYTES} bytes, the most a request may have", code="too_large")
        if not message.get("more_body"):
            return b"".join(parts)
