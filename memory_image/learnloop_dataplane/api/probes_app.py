"""Probes and metrics on a port of their own: no flood of tenants takes them away, and no tenant reads all figures."""

import contextlib
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from learnloop_dataplane.api.http import error_responses
from learnloop_dataplane.api.routes import health
from learnloop_dataplane.assembly.data_plane import DataPlane

CONNECTIONS = 64
"""More than a kubelet and some Prometheus ever have."""


def probes_app(plane: DataPlane) -> FastAPI:
    """/healthz, /readyz and /metrics of this process, and nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.data_plane = plane
    error_responses.install(app)
    app.include_router(health.router)
    app.include_router(health.figures)
    return app


class Beside(uvicorn.Server):
    """A server in the event loop of another, which hears the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them to the other."""
        yield
