"""The FastAPI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.api import openapi
from learnloop_dataplane.api.http import error_responses
from learnloop_dataplane.api.http.idempotency_keys import Idempotency
from learnloop_dataplane.api.http.request_limits import RequestLimits
from learnloop_dataplane.api.routes import (
    agents,
    artifacts,
    audit,
    certificates,
    deployments,
    erasure,
    event_schemas,
    experience,
    gates,
    health,
    memories,
    memory_lifecycle,
    people,
    quotas,
    recall_feedback,
    rewards,
    studies,
    training_jobs,
    training_runs,
    trajectories,
)
from learnloop_dataplane.assembly.data_plane import DataPlane
from learnloop_dataplane.config import Config
from learnloop_dataplane.privacy import keyed_digests, redaction

ROUTERS = (
    trajectories,
    experience,
    agents,
    rewards,
    memories,
    recall_feedback,
    memory_lifecycle,
    artifacts,
    training_runs,
    studies,
    training_jobs,
    people,
    erasure,
    deployments,
    gates,
    certificates,
    audit,
    quotas,
    event_schemas,
    health,
)


def create_app(config: Config) -> FastAPI:
    """The data plane; its background work lives as long as the app does."""
    keys = KeyLines.parse(config.pseudonym_key.get_secret_value()) if config.pseudonym_key else None
    redaction.use_keys(keys)
    keyed_digests.use_keys(keys)
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
    error_responses.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    if config.probes_port is None:
        app.include_router(health.figures)
    app.add_middleware(Idempotency)
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
        routes = [route for module in ROUTERS for route in module.router.routes if isinstance(route, APIRoute)]
        app.openapi_schema = openapi.build(app, routes)
    return app.openapi_schema
