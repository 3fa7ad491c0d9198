"""The FastAPI application."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.agents import routes as agents
from learnloop_dataplane.api import requests as responses
from learnloop_dataplane.api.request_limits import RequestLimits
from learnloop_dataplane.api.requests import IDENTITY_PARAMETERS, JsonBody, answer, data_plane, identify
from learnloop_dataplane.assembly.data_plane import DataPlane
from learnloop_dataplane.audit import routes as audit
from learnloop_dataplane.config import Config
from learnloop_dataplane.erasure import routes as erasure
from learnloop_dataplane.experience import routes as experience
from learnloop_dataplane.lifecycle import routes as lifecycle
from learnloop_dataplane.memories import routes as memories
from learnloop_dataplane.privacy import redaction
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
    redaction.use_keys(config.lines("pseudonym_key"))
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
