"""Training runs: heartbeats, checkpoints, manifests."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from learnloop_api.wire.base import Name
from learnloop_api.wire.training import Heartbeat, Manifest, TrainingRun
from learnloop_dataplane.api.http.dependencies import (
    Caller,
    DigestHeader,
    NamePath,
    Svc,
    answer,
    only,
    ranks_only,
    same,
)
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.api.routes.artifacts import BYTES, RAW_BODY, send
from learnloop_dataplane.blobs.blob_store import spooled
from learnloop_dataplane.registry.training_runs import KEEP_CHECKPOINTS, LAST_PHASES, status_subject

router = APIRouter(prefix="/api/v1/training/runs", tags=["training"])
MAX_STEP = 2**62


@router.put("/{job}/heartbeat")
async def put_heartbeat(
    job: NamePath, body: Annotated[Heartbeat, json_body(Heartbeat)], service: Svc, caller: Caller
) -> Response:
    """Keeps the newest heartbeat; an older attempt's is ignored (accepted: false)."""
    same("job", job, body.job)
    await ranks_only(service, caller, job, body.attempt)
    accepted = await service.runs.beat(caller.namespace, body)
    if accepted and body.phase in LAST_PHASES:
        service.arrived(caller.namespace)  # it waits in the outbox
    elif accepted and service.bus:
        subject = status_subject(caller.namespace, job)
        service.bus.publish_best_effort(subject, body.model_dump_json().encode())
    return answer({"accepted": accepted})


@router.put("/{job}/checkpoint", openapi_extra=RAW_BODY)
async def put_checkpoint(
    job: NamePath,
    request: Request,
    service: Svc,
    caller: Caller,
    x_learnloop_sha256: DigestHeader,
    x_learnloop_step: Annotated[int, Header(ge=0, le=MAX_STEP)],
    x_learnloop_agent: Annotated[Name | None, Header()] = None,
) -> Response:
    """Replaces the run's checkpoint in one step; `x-learnloop-agent` says whom the run trains."""
    await ranks_only(service, caller, job)
    limit = service.config.max_artifact_bytes
    async with spooled(request.stream(), service.blobs, sha256=x_learnloop_sha256, max_bytes=limit) as upload:
        step, agent = x_learnloop_step, x_learnloop_agent
        return answer(await service.runs.put_checkpoint(caller.namespace, job, step, upload, agent))


@router.get("/{job}/checkpoint", response_class=StreamingResponse, responses={200: BYTES})
async def get_checkpoint(
    job: NamePath, service: Svc, caller: Caller, back: Annotated[int, Query(ge=0, lt=KEEP_CHECKPOINTS)] = 0
) -> Response:
    """The newest checkpoint, or with `back` 1 the one before it; 404 when there is none."""
    info, content = await service.runs.get_checkpoint(caller.namespace, job, back)
    return send(content, {"x-learnloop-step": str(info.step)})


@router.put("/{job}/manifest")
async def put_manifest(
    job: NamePath, body: Annotated[Manifest, json_body(Manifest)], service: Svc, caller: Caller
) -> Response:
    """Writes the proof of a finished run: once for each attempt of its gang."""
    same("job", job, body.job)
    await ranks_only(service, caller, job, body.attempts - 1)
    await service.runs.put_manifest(caller.namespace, body)
    return answer({"job": job})


@router.get("/{job}", response_model=TrainingRun)
async def get_run(job: NamePath, service: Svc, caller: Caller) -> Response:
    """All that is known of a run; 404 when nothing was ever reported."""
    return answer(await service.runs.get(caller.namespace, job))


@router.delete("/{job}", status_code=204, dependencies=[only("delete", "runs")])
async def delete_run(job: NamePath, service: Svc, caller: Caller) -> Response:
    """Forgets a run and its checkpoints; artifacts stay."""
    await service.runs.delete(caller.namespace, job)
    return Response(status_code=204)
