"""The FastAPI application, and the middleware that bounds and counts every request."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from prometheus_client import Histogram
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_api.wire.trajectory import Trajectory
from learnloop_common import http_server, telemetry
from learnloop_dataplane import errors, privacy
from learnloop_dataplane.agents import routes as agents
from learnloop_dataplane.api import route_input as responses
from learnloop_dataplane.api.route_input import IDENTITY_PARAMETERS, JsonBody, answer, data_plane, identify, refusal
from learnloop_dataplane.assembly.data_plane import DataPlane
from learnloop_dataplane.audit import routes as audit
from learnloop_dataplane.concurrency.limits import RequestShare
from learnloop_dataplane.config import Config
from learnloop_dataplane.erasure import routes as erasure
from learnloop_dataplane.experience import routes as experience
from learnloop_dataplane.lifecycle import routes as lifecycle
from learnloop_dataplane.memories import routes as memories
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.registry import routes as registry
from learnloop_dataplane.rewards import routes as rewards
from learnloop_dataplane.rewards.routes import Calculate
from learnloop_dataplane.training import routes as training

# The only routes without a caller. Metrics name every namespace: where they have a port of their own, the tenants' has
# none.
probes = APIRouter(include_in_schema=False)
figures = APIRouter(include_in_schema=False)


@probes.get("/healthz")
async def healthz() -> Response:
    """The process runs. A store that is away does not require a restart."""
    return answer({"status": "ok"})


@probes.get("/readyz")
async def readyz(request: Request) -> Response:
    """PostgreSQL answers and, where it is configured, NATS has all streams. `degraded` lists what is slower or refuses
    uploads or episodes; keep sending."""
    readiness = data_plane(request).readiness
    if problems := await readiness.problems():
        field, message = next(iter(problems.items()))
        return answer({"error": {"field": field, "value": None, "message": message}, "problems": problems}, 503)
    return answer({"status": "ok", "degraded": readiness.degraded()})


@figures.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    figures = data_plane(request).shared.metrics.render()
    return Response(figures, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTERS = (
    experience.router,
    experience.episodes,
    agents.router,
    rewards.router,
    memories.router,
    lifecycle.router,
    registry.router,
    training.runs,
    training.studies,
    training.router,
    erasure.people,
    erasure.router,
    registry.models,
    registry.gates,
    audit.router,
    registry.quotas,
    experience.schemas,
    probes,
)


def create_app(config: Config) -> FastAPI:
    """The data plane; its background work lives as long as the app does."""
    privacy.use_keys(config.lines("pseudonym_key"))
    plane = DataPlane(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        plane.start()
        yield
        await plane.close()

    app = FastAPI(
        title="learnloop data plane",
        version="v1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Without an OpenTelemetry SDK, which no image has, FastAPI would look for one with every request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.data_plane = plane
    responses.install(app)
    for router in ROUTERS:
        app.include_router(router)
    if config.probes_port is None:
        app.include_router(figures)
    app.add_middleware(
        RequestLimits,
        max_body=config.max_body_bytes,
        max_upload=config.max_artifact_bytes,
        metrics=plane.shared.metrics,
        requests=plane.requests,
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
        app.openapi_schema = build(app, routes)
    return app.openapi_schema


_TEMPLATE = "#/components/schemas/{model}"
_FASTAPIS = ("HTTPValidationError", "ValidationError")


class Problem(BaseModel):
    """A problem of a request."""

    field: str | None = Field(description="dotted path of the input at fault, when there is one")
    value: str | None = Field(description="the value at fault, shortened")
    message: str = Field(description="the problem and its fix, one sentence")


class Refusal(BaseModel):
    """The one shape of every refusal."""

    error: Problem


def build(app: FastAPI, routes: Iterable[APIRoute]) -> dict[str, Any]:
    """The document: bodies that are validated by hand on the hot path have their schemas too, and every operation
    says how it refuses."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    routes = list(routes)
    bodies = dict(_bodies(routes))
    of_callers = {place for route in routes if _asks_who_calls(route.dependant) for place in _places(route)}
    by_hand: tuple[type[BaseModel], ...] = (Trajectory, Calculate, *memories.READ_BY_HAND, *bodies.values(), Refusal)
    # Together: two models of one name in different modules get names of their own.
    references, definitions = models_json_schema([(model, "validation") for model in by_hand], ref_template=_TEMPLATE)
    schemas.update(definitions["$defs"])
    for name in _FASTAPIS:
        schemas.pop(name, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if body := bodies.get((path, method)):
                schema = references[body, "validation"]
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            if (path, method) in of_callers:
                operation["parameters"] = [*operation.get("parameters", []), *IDENTITY_PARAMETERS]
            operation["responses"].pop("422", None)
            operation["responses"] |= _refusals()
    return document


def _bodies(routes: Iterable[APIRoute]) -> Iterator[tuple[tuple[str, str], type[BaseModel]]]:
    """Models of bodies that `json_body` reads, by path and method."""
    for route in routes:
        for dependency in route.dependant.dependencies:
            if isinstance(dependency.call, JsonBody):
                for place in _places(route):
                    yield place, dependency.call.model


def _asks_who_calls(dependant: Dependant) -> bool:
    return dependant.call is identify or any(map(_asks_who_calls, dependant.dependencies))


def _places(route: APIRoute) -> Iterator[tuple[str, str]]:
    """Path and method, as the document has them."""
    for method in route.methods or ():
        yield route.path_format, method.lower()


def _refusals() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _TEMPLATE.format(model="Refusal")}}}
    again = {"Retry-After": {"description": "seconds, where waiting helps", "schema": {"type": "string"}}}
    return {
        "4XX": {
            "description": "Refused; the message says why. 429: too many; the same request may succeed later.",
            "content": content,
            "headers": again,
        },
        "503": {"description": "A store does not answer right now.", "content": content, "headers": again},
    }


def probes_app(plane: DataPlane) -> FastAPI:
    """/healthz, /readyz and /metrics of this process, and nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.data_plane = plane
    responses.install(app)
    app.include_router(probes)
    app.include_router(figures)
    return app


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
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = _trace(scope)
        with telemetry.about(trace_id=trace) if trace else nullcontext():
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
                raise errors.ApiError(408, "the request stalled for 30 s; send it again", field="body") from None
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
            if problem := http_server.encoding_problem(scope["headers"]):
                raise errors.ApiError(415, problem, field="body")
            if _declared(scope) > limit:
                raise _too_large(limit)
            await self._app(scope, receive if _declared(scope) == 0 else bounded, noting)
        except errors.ApiError as error:
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
    return telemetry.trace_of(header.decode("latin-1")) if header else ""


def _declared(scope: Scope) -> int:
    """Content-Length; 1 for a body of unknown length; 0 for no body."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return 1
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 1


def _too_large(limit: int) -> errors.ApiError:
    return errors.ApiError(413, f"the body is larger than {limit} bytes; make it smaller", field="body")
