"""Refusals of a policy server, as exceptions and as responses."""

import logging
from typing import Any, Literal

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from learnloop_api.wire.routing import Override, Reason
from learnloop_common.http_server import LogThrottle

Apart = Literal["invalid", "overridden", "throttled"]


class Refusal(Exception):
    """A request that is not served. `apart` says whether it is left out of the arm's evidence.

    Attributes:
        retry_after: seconds until a retry may work; 0: unknown.
    """

    def __init__(self, status: int, reason: Reason, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def by_caller(self) -> bool:
        """True where no policy could answer the request: it is not evidence about this one."""
        return self.reason in ("InvalidInput", "TooLarge")

    @property
    def apart(self) -> Apart | None:
        """Why this is left out of the evidence; None if it counts."""
        if self.by_caller:
            return "invalid"
        if self.reason in ("FallbackOrdered", "Stopped"):
            return "overridden"
        return "throttled" if self.reason == "Throttled" else None


def ordered(override: Override) -> Refusal:
    """Refusal by an override that keeps the policy from answering."""
    if override.instead == "fallback":
        return Refusal(409, "FallbackOrdered", f"your own fallback decides, as ordered {override.sentence()}")
    return Refusal(403, "Stopped", f"this agent gets no answers, as ordered {override.sentence()}")


def first_error(error: ValidationError) -> tuple[str, str]:
    """The first invalid field, and a sentence with the field, its value and the fix.

    The value is left out where it is an object or a list: a sentence that begins with the whole body hides the fault.
    """
    every = error.errors(include_url=False)
    first = next((one for one in every if one["type"] == "value_error"), every[0])  # of a union, the one that says why
    field, value = ".".join(map(str, first["loc"])), first.get("input")
    shown = "" if isinstance(value, dict | list) else f"{value!r:.80}: "
    return field, f"{field or 'body'}: {shown}{first['msg'].removeprefix('Value error, ')}"


def invalid(error: ValidationError) -> Refusal:
    """400 that names the first invalid field, its value and the fix."""
    return Refusal(400, "InvalidInput", first_error(error)[1])


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body; raises Refusal 413 for more than `limit` bytes."""
    parts, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise Refusal(413, "TooLarge", f"body: longer than {limit} bytes")
            parts.append(chunk)
    except ClientDisconnect:
        raise Refusal(400, "InvalidInput", "body: the client closed the connection") from None
    return b"".join(parts)


def refused(refusal: Refusal, *, inference: bool = False) -> Response:
    """The response of a refusal; `inference`: as that protocol has it."""
    text = refusal.message[:1000]
    fields: dict[str, Any] = {"error": text} if inference else {"reason": refusal.reason, "message": text}
    headers = {}
    if refusal.retry_after:
        fields["retry_after"] = refusal.retry_after
        headers["retry-after"] = str(refusal.retry_after)
    return JSONResponse(fields, refusal.status, headers)


log = logging.getLogger(__name__)
_strangers = LogThrottle()


def log_stranger(scope: Scope, refusal: Refusal) -> None:
    address = (scope.get("client") or "-")[0]
    by = str(refusal) if refusal.status == 403 else ""  # a caller that proved nothing has no name
    if (end := _strangers.due(address, by, refusal.status)) is not None:
        log.warning("a caller from %s is refused with %d: %s%s", address, refusal.status, refusal, end)
