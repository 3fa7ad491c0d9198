"""Probes and metrics on one small HTTP server."""

import ssl
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from learnloop_operator.metrics import OperatorMetrics


class ProbeServer:
    """GET /metrics, /healthz (500 with the reason when `unhealthy` gives one), /readyz (503 likewise)."""

    def __init__(
        self,
        metrics: OperatorMetrics,
        *,
        unhealthy: Callable[[], str | None],
        unready: Callable[[], str | None],
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics, self._unhealthy, self._unready, self._refresh = metrics, unhealthy, unready, refresh
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, port: int, host: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 takes a free one and says which in `port`. Without `tls`, plain HTTP."""
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _serve_health(self, _: web.Request) -> web.Response:
        return _answer(self._unhealthy(), 500)

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        return _answer(self._unready(), 503)


def _answer(problem: str | None, status: int) -> web.Response:
    return web.Response(status=status if problem else 200, text=problem or "ok")
