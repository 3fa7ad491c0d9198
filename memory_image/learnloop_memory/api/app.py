"""The FastAPI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from learnloop_memory.api import (
    agents,
    artifacts,
    audit,
    deployments,
    erasure,
    errors,
    feedback,
    health,
    life,
    memory,
    openapi,
    rewards,
    schemas,
    studies,
    training,
    training_jobs,
    trajectories,
    users,
)
from learnloop_memory.api.direct import Direct
from learnloop_memory.api.idempotency import Idempotency
from learnloop_memory.api.limits import Limits
from learnloop_memory.config import Config
from learnloop_memory.experience.redact import use_key
from learnloop_memory.service import Service

ROUTERS = (
    trajectories,
    agents,
    rewards,
    memory,
    feedback,
    life,
    artifacts,
    training,
    studies,
    training_jobs,
    users,
    erasure,
    deployments,
    audit,
    schemas,
    health,
)
HOT = (trajectories, rewards, memory)  # of their routes, those that read the caller and the body by hand


def create_app(config: Config) -> FastAPI:
    """The data plane; its background work lives as long as the app does."""
    use_key(config.pseudonym_key.get_secret_value().encode() if config.pseudonym_key else None)
    service = Service(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(
        title="learnloop data plane",
        version="v1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Without an OpenTelemetry SDK, which no image has, FastAPI would look for one with every request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    errors.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    # Around everything, so that the hot routes do without what Starlette and FastAPI put around each request.
    hot = [route for module in HOT for route in module.router.routes if isinstance(route, APIRoute)]
    hot = [route for route in hot if not route.dependant.dependencies]
    app.middleware_stack = Limits(
        Idempotency(Direct(app.build_middleware_stack(), routes=hot)),
        max_body=config.max_body_bytes,
        max_upload=config.max_artifact_bytes,
        metrics=service.metrics,
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        routes = [route for module in ROUTERS for route in module.router.routes if isinstance(route, APIRoute)]
        app.openapi_schema = openapi.build(app, routes)
    return app.openapi_schema
