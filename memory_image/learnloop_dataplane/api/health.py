"""Probes and metrics; the only routes without a caller. Metrics name every namespace: where they have a port of their
own, the tenants' has none."""

from fastapi import APIRouter, Request, Response

from learnloop_dataplane.api.requests import answer, data_plane

router = APIRouter(include_in_schema=False)
figures = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthz() -> Response:
    """The process runs. A store that is away does not require a restart."""
    return answer({"status": "ok"})


@router.get("/readyz")
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
