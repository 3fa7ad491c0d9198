"""Answers: one shape for refusals, and marks of pages."""

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.privacy.redaction import redact_text

log = logging.getLogger(__name__)
MAX_VALUE = 200
MAX_MESSAGE = 1000
_FIELD = re.compile(r"([a-z_]{1,64}): ")


def refusal(error: ApiError) -> Response:
    """The answer for an ApiError."""
    value = None if error.value is None or error.field == "authorization" else redact_text(str(error.value)[:MAX_VALUE])
    body = {"error": {"field": error.field, "value": value, "message": error.message[:MAX_MESSAGE]}}
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    if error.status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return Response(to_json(body), status_code=error.status, media_type="application/json", headers=headers)


def from_validation(errors: list[Any]) -> ApiError:
    """The first of pydantic's complaints."""
    first = errors[0]
    where = [str(part) for part in first["loc"]]
    field = ".".join(where[1:] if where and where[0] in ("body", "path", "query", "header") else where) or "body"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and (named := _FIELD.match(message)):
        # A rule across fields says itself which one it is about.
        field = named[1] if field == "body" else f"{field}.{named[1]}"
        message = message[named.end() :]
    hint = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    value = None if first["type"] in ("missing", "json_invalid", "value_error") else first.get("input")
    return ApiError(422, f"{message}; correct it and send it again{hint}", field=field, value=value)


def _methods(app: FastAPI, request: Request) -> set[str]:
    """Of every route with this path; Starlette names those of the first only."""
    matching = [route for route in app.routes if route.matches(request.scope)[0] != Match.NONE]
    return {method for route in matching for method in getattr(route, "methods", None) or ()}


def install(app: FastAPI) -> None:
    """Registers the handlers."""

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return refusal(error)

    @app.exception_handler(RequestValidationError)
    async def validation(_: Request, error: RequestValidationError) -> Response:
        return refusal(from_validation(list(error.errors())))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        answer = refusal(ApiError(error.status_code, str(error.detail)))
        if error.status_code == 405:
            answer.headers["Allow"] = ", ".join(sorted(_methods(app, request)))
        return answer

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the caller has hung up

    @app.exception_handler(Exception)
    async def mistake(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return refusal(ApiError(500, "the data plane made a mistake; its log says more"))


Mark = tuple[datetime, *tuple[str, ...]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANY = "([A-Za-z0-9_.-]|~[2-9A-F][0-9A-F])*"
UUID_KEY = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MICROSECOND = timedelta(microseconds=1)


def page_mark(keys: int, key: str = _ANY) -> Any:
    """The query parameter of a list that is ordered by time and so many keys; it takes what `following` gave.

    Args:
        key: the pattern of a key, escaped.
    """
    form = rf"^[0-9]{{1,16}}(,{key}){{{keys}}}$"
    return Query(max_length=4096, pattern=form, description="`next` of the page before")


def following(time: datetime, *keys: str) -> str:
    """The mark of a row: when it is from, and what else it is ordered by. It goes into a URL as it is."""
    escaped = (quote(key, safe="").replace("~", "%7E").replace("%", "~") for key in keys)
    return ",".join([str((time - _EPOCH) // _MICROSECOND), *escaped])


def begins_after(mark: str | None) -> Mark | None:
    """The time and keys in a mark of `following`; None without a mark."""
    if mark is None:
        return None
    time, *keys = mark.split(",")
    return (_EPOCH + int(time) * _MICROSECOND, *(unquote(key.replace("~", "%")) for key in keys))
