"""Everything a route needs: the caller, the parts it depends on, bounded names, strict JSON bodies, and answers."""

import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote, unquote

import orjson
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from learnloop_api import names
from learnloop_api.wire.base import Name as NameRule, Sha256
from learnloop_common.http_server import LogThrottle
from learnloop_common.service_accounts import NAMESPACE
from learnloop_dataplane import privacy, strict_json
from learnloop_dataplane.access import kubernetes_api, tokens
from learnloop_dataplane.assembly import experience_parts, memory_parts
from learnloop_dataplane.assembly.data_plane import CallerChecks, DataPlane
from learnloop_dataplane.audit.chain import SYSTEM, actor
from learnloop_dataplane.concurrency import limits
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.registry.artifacts import StorageQuotas

MAX_AUTHORIZATION, MAX_NAMESPACE = 16_384, 63
# Only said here: auth refuses other names, in a sentence of its own.
_NAMESPACE: dict[str, Any] = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "minLength": 1, "maxLength": MAX_NAMESPACE}


class Input(BaseModel):
    """A request body that is not part of the wire contract: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def data_plane(request: Request) -> DataPlane:
    """The process that this app serves; for hot routes and middleware. Other routes depend on single parts."""
    plane: DataPlane = request.app.state.data_plane
    return plane


async def identify(request: Request) -> tokens.Identity:
    """The caller, by its token.

    Headers and query are read here: as parameters of their own, four for each of a hundred routes, they cost 2 MiB of
    every process, 60 ms of its start and 0.2 ms of a request.

    Raises:
        Invalid: a header or the namespace is too long, or is not a namespace's name.
        ApiError: 429, the namespace has too many requests under way.
    """
    headers = request.headers
    authorization, token = headers.get("authorization"), headers.get(names.HEADER_TOKEN)
    named = headers.get(names.HEADER_NAMESPACE)
    queried = request.query_params.get("namespace") if request.scope["query_string"] else None
    for field, value, most in (
        ("authorization", authorization, MAX_AUTHORIZATION),
        (names.HEADER_TOKEN, token, MAX_AUTHORIZATION),
        (names.HEADER_NAMESPACE, named, MAX_NAMESPACE),
        ("namespace", queried, MAX_NAMESPACE),
    ):
        if value is not None and len(value) > most:
            raise Invalid(f"longer than {most} characters; send a valid one", field=field)
    plane = data_plane(request)
    callers = plane.callers
    if queried is not None and not NAMESPACE.fullmatch(queried):
        raise ApiError(400, "not the name of a namespace", field="namespace", value=queried)
    if authorization is None and token is not None:
        authorization = f"Bearer {token}"
    caller = await callers.identify(authorization, queried if named is None and callers.anonymous else named)
    actor.set(caller.subject)
    if caller.bearer is not None:
        tokens.require_open(caller.bearer, request.method, request.scope["path"])
    if not callers.is_operator(caller):  # it acts for all namespaces
        plane.requests.enter(request.scope, caller.namespace)
    return caller


def _parameter(name: str, where: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": False, "schema": {"type": "string", **schema}} | (
        {"description": description} if description else {}
    )


_TOKEN = {"maxLength": MAX_AUTHORIZATION}
IDENTITY_PARAMETERS: list[dict[str, Any]] = [
    _parameter("authorization", "header", _TOKEN, ""),
    _parameter(names.HEADER_TOKEN, "header", _TOKEN, "the token alone, where a proxy takes Authorization away"),
    _parameter(names.HEADER_NAMESPACE, "header", _NAMESPACE, "honoured only from the operator's own service account"),
    _parameter("namespace", "query", _NAMESPACE, "only where authentication is off"),
]
"""The description of `identify` in OpenAPI."""


def by_hand(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI part of a hot route whose body is read by hand: FastAPI's own way costs as much as the work."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"parameters": IDENTITY_PARAMETERS, "requestBody": body}


# Of what answers 201 otherwise.
NOTHING_NEW: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "It was there already, or is not kept; the body says which.",
        "content": {"application/json": {}},
    }
}


def _part(pick: Callable[[DataPlane], Any]) -> Any:
    async def part(request: Request) -> Any:
        return pick(data_plane(request))

    return Depends(part)


Db = Annotated[Database, _part(lambda plane: plane.shared.db)]
Callers = Annotated[CallerChecks, _part(lambda plane: plane.callers)]
Experience = Annotated[experience_parts.ExperienceParts, _part(lambda plane: plane.experience)]
Memory = Annotated[memory_parts.MemoryParts, _part(lambda plane: plane.memory)]
Training = Annotated[experience_parts.TrainingParts, _part(lambda plane: plane.training)]
Privacy = Annotated[memory_parts.PrivacyParts, _part(lambda plane: plane.privacy)]
Quota = Annotated[StorageQuotas, _part(lambda plane: plane.quotas)]
Caller = Annotated[tokens.Identity, Depends(identify)]
NamePath = Annotated[NameRule, Path()]
DigestPath = Annotated[Sha256, Path()]
DigestHeader = Annotated[Sha256, Header(alias="x-learnloop-sha256")]


async def administers(
    request: Request, caller: tokens.Identity, verb: kubernetes_api.Verb, resource: kubernetes_api.Resource
) -> None:
    """Raises a 403 where the caller is an agent and the route is not an agent's."""
    await data_plane(request).callers.require(caller, verb, resource)


def only(verb: kubernetes_api.Verb, resource: kubernetes_api.Resource) -> Any:
    """The dependency of a route that is not an agent's."""

    async def allowed(request: Request, caller: Caller) -> None:
        await administers(request, caller, verb, resource)

    return Depends(allowed)


def answer(content: Any, status: int = 200) -> Response:
    """JSON without a second validation of what this service itself produced."""
    return Response(to_json(content), status_code=status, media_type="application/json")


def quick(content: Any, status: int = 200) -> Response:
    """The same for the hot routes, several times faster: dataclasses, ids and JSON that is finished already."""
    return Response(orjson.dumps(content, default=str), status_code=status, media_type="application/json")


def same(field: str, path: str, body: str) -> None:
    """Raises a 409 where the body is about something else than the path."""
    if path != body:
        raise ApiError(
            409, f"the body is about another one than the path ({path}); send it there", field=field, value=body
        )


def not_found(field: str, value: str, message: str) -> ApiError:
    """404 in the shape every refusal has."""
    return ApiError(404, message, field=field, value=value)


class JsonBody:
    """A dependency that reads the request's body as `model`; the OpenAPI document finds the model here.

    FastAPI itself validates what `json.loads` made of the body, where strictness would refuse timestamps and ids for
    being text.

    Args:
        mends: see StrictReader.
    """

    def __init__(self, model: type[BaseModel], *, mends: bool = False) -> None:
        self.model = model
        self._reader = strict_json.StrictReader(model, mends=mends)

    async def __call__(self, request: Request, caller: Caller) -> Any:
        """Raises RequestValidationError, which becomes a 422 that names the field.

        The caller comes first: who proves nothing has no body read, let alone parsed.
        """
        return await self.receive(caller.namespace, await request.body())

    async def receive(self, namespace: str, body: bytes) -> Any:
        """The same for bytes; a large body is read in a thread."""
        limits.body_bytes.set(len(body))
        return await limits.in_thread_if_large(namespace, self.read, body)

    def read(self, body: bytes) -> Any:
        """The same for bytes, in this thread."""
        try:
            return self._reader.read(body)
        except ValidationError as error:
            # An input is a copy, often of the whole body, for each fault.
            faults: Sequence[Any] = error.errors(include_url=False, include_input=len(body) < limits.LARGE_BYTES)
            raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in faults]) from None


def json_body(model: type[BaseModel]) -> Any:
    """For signatures: `body: Annotated[Start, json_body(Start)]`."""
    return Depends(JsonBody(model))


def alternatives(*fields: str, at_most_one: bool) -> Any:
    """For `json_schema_extra`: says in the schema what a validator says in words, that one of these fields is given.

    Args:
        fields: each may be null by itself.
        at_most_one: the others must then be null or absent.
    """

    def extend(schema: dict[str, Any]) -> None:
        cases = []
        for chosen in fields:
            properties = dict(schema["properties"])
            for name in fields:
                if name == chosen:
                    properties[name] = _not_null(properties[name])
                elif at_most_one:
                    properties[name] = {"type": "null"}
            required = [*schema.get("required", []), chosen]
            cases.append({"type": "object", "properties": properties, "required": required})
        closed = schema.pop("additionalProperties", False)
        for case in cases:
            case["additionalProperties"] = closed
        for key in ("type", "properties", "required"):
            schema.pop(key, None)
        schema["anyOf"] = cases

    return extend


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    given = [case for case in schema.get("anyOf", []) if case.get("type") != "null"]
    return rest | given[0] if given else rest


log = logging.getLogger(__name__)
MAX_VALUE = 200
MAX_MESSAGE = 1000
_FIELD = re.compile(r"([a-z_]{1,64}): ")


def refusal(error: ApiError) -> Response:
    """The answer for an ApiError."""
    value = (
        None
        if error.value is None or error.field == "authorization"
        else privacy.redact_text(str(error.value)[:MAX_VALUE])
    )
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


def _origin(request: Request) -> tuple[str, str]:
    """The route, without the names in its path, and the address that asks."""
    path = getattr(request.scope.get("route"), "path", "-")
    return f"{request.method} {path}", request.client.host if request.client else "-"


def install(app: FastAPI) -> None:
    refusals = LogThrottle()

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        if error.status in (401, 403, 413, 429):
            by = "" if actor.get() == SYSTEM else f" by {actor.get()}"  # a caller that proved nothing has no name
            if (end := refusals.due(*_origin(request), by, error.status)) is not None:
                why = privacy.redact_text(error.message[:MAX_MESSAGE])
                log.warning("%s from %s%s is refused with %d: %s%s", *_origin(request), by, error.status, why, end)
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
        log.error("%s from %s failed", *_origin(request), exc_info=error)
        return refusal(ApiError(500, "internal error of the data plane; see its log"))


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
