"""What every HTTP server of an arm's pod has in common: it says nothing of itself, and bounds whoever asks."""

import ssl

import uvicorn
from starlette.types import ASGIApp


def uvicorn_config(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    connections: int,
    tls: ssl.SSLContext | None,
    drain_seconds: int | None = None,
) -> uvicorn.Config:
    """For `app` at `host`:`port`.

    Args:
        connections: at once; more are answered 503.
        drain_seconds: for what is under way when the server ends; None: as long as it takes.
    """
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=drain_seconds,
        limit_concurrency=connections,
        h11_max_incomplete_event_size=16_384,
        ssl_context_factory=(lambda *_: tls) if tls else None,
    )
