"""Probes and metrics; the only routes without a caller."""

from fastapi import APIRouter, Response

from learnloop_dataplane.api.http.dependencies import Svc, answer
from learnloop_dataplane.errors import Unavailable

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthz() -> Response:
    """The process runs. Stores that are away are no reason to restart it."""
    return answer({"status": "ok"})


@router.get("/readyz")
async def readyz(service: Svc) -> Response:
    """PostgreSQL answers and, where it is configured, NATS has all streams. What is `degraded` is slower, or refuses
    uploads, or will refuse episodes, and no reason to send nothing."""
    problems: dict[str, str] = {}
    try:
        await service.db.ping()
    except Unavailable as error:
        problems["postgresql"] = error.message if service.db.ready.is_set() else service.db.problem
    if service.bus:
        try:
            await service.bus.ping()
        except Unavailable as error:
            problems["nats"] = error.message if service.bus.ready.is_set() else service.bus.problem
    if problems:
        field, message = next(iter(problems.items()))
        return answer({"error": {"field": field, "value": None, "message": message}, "problems": problems}, 503)
    degraded = {
        work: f"the last pass failed ({error}) and is tried again; the log has the whole error"
        for work, error in service.background.failing.items()
    }
    if service.room and service.room.problem:
        degraded["streams"] = service.room.problem
    if service.artifacts.problem:
        degraded["artifact store"] = service.artifacts.problem
    if service.following.problem:
        degraded["vector store"] = service.following.problem[:500]
    return answer({"status": "ok", "degraded": degraded})


@router.get("/metrics")
async def metrics(service: Svc) -> Response:
    """Prometheus text format."""
    return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
