"""Bounds every request: size of the body, patience with slow senders; and counts it."""

import asyncio
import time
from contextlib import nullcontext

from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_common.http_server import encoding_problem
from learnloop_common.telemetry.json_logs import about, trace_of
from learnloop_dataplane.access.callers import RequestShare
from learnloop_dataplane.api.requests import refusal
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.metrics import Metrics

READ_SECONDS = 30.0


class RequestLimits:
    """ASGI middleware. Upload routes bring their own, larger limit.

    Args:
        max_body: bytes of an ordinary request body.
        max_upload: bytes of an artifact or checkpoint.
        requests: the requests under way, by namespace.
    """

    def __init__(
        self, app: ASGIApp, *, max_body: int, max_upload: int, metrics: Metrics, requests: RequestShare
    ) -> None:
        self._app = app
        self._requests = requests
        self._max_body = max_body
        self._max_upload = max_upload
        self._metrics = metrics
        self._timers: dict[tuple[str, str, int], Histogram] = {}  # `labels` takes as long as a small route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = _trace(scope)
        with about(trace_id=trace) if trace else nullcontext():
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._max_upload if is_upload(scope) else self._max_body
        started, status, received = time.perf_counter(), 500, 0

        async def bounded() -> Message:
            nonlocal received
            try:
                async with asyncio.timeout(READ_SECONDS):  # wait_for would start a task for every message
                    message = await receive()
            except TimeoutError:
                raise ApiError(408, "the request stalled for 30 s; send it again", field="body") from None
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if problem := encoding_problem(scope["headers"]):
                raise ApiError(415, problem, field="body")
            if _declared(scope) > limit:
                raise _too_large(limit)
            await self._app(scope, receive if _declared(scope) == 0 else bounded, noting)
        except ApiError as error:
            # Raised while the body was read outside of a route.
            await refusal(error)(scope, receive, noting)
        finally:
            self._requests.leave(scope)
            route = getattr(scope.get("route"), "path", "-")
            key = route, scope["method"], status
            timer = self._timers.get(key)
            if timer is None:
                timer = self._timers[key] = self._metrics.requests.labels(route, key[1], str(status))
            timer.observe(time.perf_counter() - started)


def is_upload(scope: Scope) -> bool:
    """True for a PUT of a raw blob."""
    path: str = scope["path"]
    return scope["method"] == "PUT" and (path == "/api/v1/artifacts" or path.endswith("/checkpoint"))


def _trace(scope: Scope) -> str:
    """The caller's trace, for the log lines of this request."""
    header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    return trace_of(header.decode("latin-1")) if header else ""


def _declared(scope: Scope) -> int:
    """Content-Length; 1 for a body of unknown length; 0 for no body."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return 1
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 1


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit} bytes; make it smaller", field="body")
