"""`Idempotency-Key` on every POST that creates or changes something: sent again, the same request has the same answer.

After draft-ietf-httpapi-idempotency-key-header. A key belongs to a caller in a namespace and is kept for a day
(`erasure.retention`): nobody hears what another one was answered, or has a key taken away by a neighbour. Only success
is kept: a refused request did nothing, and may be corrected under the same key. Where a process dies between doing and
keeping, the request is done twice, as far as the operation does not recognise it (`idempotency.claims`).
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_dataplane.api.http.dependencies import data_plane, identify
from learnloop_dataplane.api.http.error_responses import refusal, unexpected
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.idempotency.claims import HEADER, KeptAnswer, claim
from learnloop_dataplane.privacy import keyed_digests

MAX_ANSWER = 1_048_576
# These only read; a certificate's key is kept nowhere. /training/start makes the TrainingJob's name of its key: the
# cluster remembers it longer. /forget does nothing more when it is asked again, and its answer has texts, which must
# not outlive the memories by a day.
WITHOUT = frozenset(
    {
        "/api/v1/certificates",
        "/api/v1/memory/forget",
        "/api/v1/memory/retrieve",
        "/api/v1/memory/retrieve/batch",
        "/api/v1/rewards/bias",
        "/api/v1/rewards/dry-run",
        "/api/v1/training/start",
    }
)
PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same request with the same key is done once; its answer is kept for a day",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"},
}
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Idempotency:
    """ASGI middleware; requests without the header pass untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if not covers(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        key = request.headers.get(HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._once(request, key)
        except ApiError as error:
            response = refusal(error)
        except Exception as error:
            response = unexpected(scope, error)
        await response(scope, receive, send)

    async def _once(self, request: Request, key: str) -> Response:
        if not _KEY.fullmatch(key):
            raise Invalid("1 to 128 letters, digits and ._:-, the first a letter or digit", field=HEADER, value=key)
        caller = await identify(request)
        body = await request.body()
        content = _content(request, body)
        digest, known = keyed_digests.digest("request", content), keyed_digests.known("request", content)
        held = await claim(data_plane(request).shared.db, caller, key, digest, known)
        if isinstance(held, KeptAnswer):
            replayed = {"idempotency-replayed": "true"}
            return Response(held.body, held.status, headers=replayed, media_type="application/json")
        status, answer, headers = 500, b"", dict[str, str]()
        try:
            async with held.renewed():
                status, answer, headers = await _answered(self._app, request.scope, body)
        finally:
            if 200 <= status < 300 and len(answer) <= MAX_ANSWER:
                await held.keep(status, answer.decode())
            else:
                await held.release()
        return Response(answer, status_code=status, headers=headers)


def covers(scope: Scope) -> bool:
    """Is this one of the requests that may carry a key?"""
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] not in WITHOUT


def _content(request: Request, body: bytes) -> bytes:
    asked = json.dumps([request.method, request.url.path, sorted(request.query_params.multi_items())])
    return asked.encode() + b"\n" + body


async def _answered(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of what the application answers to this body."""
    status, parts, headers = 500, list[bytes](), dict[str, str]()

    async def again() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def kept(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    receive: Callable[[], Awaitable[Message]] = again
    await app(scope, receive, kept)
    return status, b"".join(parts), headers
