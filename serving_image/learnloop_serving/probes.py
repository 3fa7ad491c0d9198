"""The part of an arm's server that kubelet, operator and Prometheus ask, as a server on a port of its own."""

import ssl

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_common.http.probes_port import CONNECTIONS
from learnloop_serving.settings import Settings
from learnloop_serving.uvicorn_config import uvicorn_config

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class ProbesOnly:
    """ASGI: hands on GET of `PATHS`, and knows nothing else."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "http" and (scope["method"] != "GET" or scope["path"] not in PATHS):
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._inner(scope, receive, send)


def probes_config(app: ASGIApp, settings: Settings, tls: ssl.SSLContext | None) -> uvicorn.Config | None:
    """The server of `app`'s probes; None where they are served beside everything."""
    if settings.probes_port is None:
        return None
    return uvicorn_config(ProbesOnly(app), settings.host, settings.probes_port, connections=CONNECTIONS, tls=tls)
