"""The HTTP interface of a gateway: one ASGI application."""

import asyncio
from collections.abc import Awaitable

import orjson
from starlette.requests import Request
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_common.http_server import closing, encoding_problem
from learnloop_gateway.gateway import CHAT, Gateway, refused
from learnloop_gateway.replies import ApiError, Outgoing, of_refusal
from learnloop_serving.app import probes
from learnloop_serving.refusal import read_body

EPISODES = "/v1/episodes"
MODELS = "/v1/models"
MOST_BYTES = 8 * 2**20


def build_app(gateway: Gateway) -> ASGIApp:
    """The whole gateway."""

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
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
            out.headers |= {"retry-after": str(failure.retry_after)} if failure.retry_after else {}
            await out.whole(failure.status, failure.to_json())

    routes = probes(gateway, "model server or routing table not there yet")
    return closing(Router(routes, redirect_slashes=False, default=api), gateway)


async def _get(gateway: Gateway, path: str, out: Outgoing) -> None:
    if path == MODELS:
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
    body = await read_body(Request(scope, receive), MOST_BYTES)
    if path == CHAT:
        await _unless_gone(gateway.complete(headers, body, out), receive)
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
