"""Training runs: heartbeats, checkpoints, manifests."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from learnloop_api.wire.base import Name
from learnloop_api.wire.training import Heartbeat, Manifest, TrainingRun
from learnloop_api.wire.training_status import TrainingStatus
from learnloop_dataplane.api.http.dependencies import (
    Caller,
    Callers,
    DigestHeader,
    NamePath,
    Quota,
    Training,
    answer,
    only,
    same,
)
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.api.routes.artifacts import BYTES, RAW_BODY, send
from learnloop_dataplane.registry.training_runs import KEEP_CHECKPOINTS

router = APIRouter(prefix="/api/v1/training/runs", tags=["training"])
MAX_STEP = 2**62


@router.put("/{job}/heartbeat")
async def put_heartbeat(
    job: NamePath,
    body: Annotated[Heartbeat, json_body(Heartbeat)],
    training: Training,
    callers: Callers,
    caller: Caller,
) -> Response:
    """Keeps the newest heartbeat; an older attempt's is ignored (accepted: false)."""
    same("job", job, body.job)
    await callers.require_rank(caller, job, body.attempt)
    return answer({"accepted": await training.runs.beat(caller.namespace, body)})


@router.put("/{job}/status", dependencies=[only("update", "runs")])
async def put_status(
    job: NamePath, body: Annotated[TrainingStatus, json_body(TrainingStatus)], training: Training, caller: Caller
) -> Response:
    """Publishes what no heartbeat can say: that the run is queued, and how it was judged; the same again is fine."""
    same("job", job, body.job)
    return answer({"job": job, "new": await training.runs.tell(caller.namespace, body)})


@router.put("/{job}/checkpoint", openapi_extra=RAW_BODY)
async def put_checkpoint(
    job: NamePath,
    request: Request,
    training: Training,
    quotas: Quota,
    callers: Callers,
    caller: Caller,
    x_learnloop_sha256: DigestHeader,
    x_learnloop_step: Annotated[int, Header(ge=0, le=MAX_STEP)],
    x_learnloop_agent: Annotated[Name | None, Header()] = None,
    x_learnloop_attempt: Annotated[int | None, Header(ge=0, le=1_000_000)] = None,
) -> Response:
    """Replaces the run's checkpoint in one step; `x-learnloop-agent` says whom the run trains, `x-learnloop-attempt`
    which incarnation of the gang sends it (from 0): none that a newer one has followed."""
    await callers.require_rank(caller, job, x_learnloop_attempt)
    async with training.artifacts.receive(request.stream(), x_learnloop_sha256) as upload:
        # Again: what was begun before a TrainingJob waited for this run is no rank's now, nor is a pod that is gone.
        attempt = await callers.require_rank(caller, job, x_learnloop_attempt, asked="now")
        await quotas.room_for_bytes(caller.namespace, upload.size)
        step, agent = x_learnloop_step, x_learnloop_agent
        return answer(await training.runs.put_checkpoint(caller.namespace, job, step, upload, agent, attempt))


@router.get("/{job}/checkpoint", response_class=StreamingResponse, responses={200: BYTES})
async def get_checkpoint(
    job: NamePath, training: Training, caller: Caller, back: Annotated[int, Query(ge=0, lt=KEEP_CHECKPOINTS)] = 0
) -> Response:
    """The newest checkpoint, or with `back` 1 the one before it; 404 when there is none."""
    info, content = await training.runs.get_checkpoint(caller.namespace, job, back)
    return send(content, {"x-learnloop-step": str(info.step)})


@router.put("/{job}/manifest")
async def put_manifest(
    job: NamePath, body: Annotated[Manifest, json_body(Manifest)], training: Training, callers: Callers, caller: Caller
) -> Response:
    """Writes the proof of a finished run: once for each attempt of its gang."""
    same("job", job, body.job)
    await callers.require_rank(caller, job, body.attempts - 1, asked="now-or-never")
    await training.runs.put_manifest(caller.namespace, body)
    return answer({"job": job})


@router.get("/{job}", response_model=TrainingRun)
async def get_run(job: NamePath, training: Training, caller: Caller) -> Response:
    """All that is known of a run; 404 when nothing was ever reported."""
    return answer(await training.runs.get(caller.namespace, job))


@router.delete("/{job}", status_code=204, dependencies=[only("delete", "runs")])
async def delete_run(job: NamePath, training: Training, caller: Caller) -> Response:
    """Forgets a run and its checkpoints; artifacts stay."""
    await training.runs.delete(caller.namespace, job)
    return Response(status_code=204)
