"""Probes and metrics on a port of their own: no flood of tenants takes them away, and no tenant reads all figures."""

from fastapi import FastAPI

from learnloop_dataplane.api.http import error_responses
from learnloop_dataplane.api.routes import health
from learnloop_dataplane.assembly.data_plane import DataPlane


def probes_app(plane: DataPlane) -> FastAPI:
    """/healthz, /readyz and /metrics of this process, and nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.data_plane = plane
    error_responses.install(app)
    app.include_router(health.router)
    app.include_router(health.figures)
    return app
