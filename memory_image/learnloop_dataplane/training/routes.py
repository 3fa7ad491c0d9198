"""Routes of training: jobs, runs with their reports, and studies."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.base import Identifier, Name
from learnloop_api.wire.training import Heartbeat, Proof, TrainingRun, UpdateOrder
from learnloop_api.wire.training_request import (
    StudyOrder,
    StudyState,
    TrainingStatus,
    Trial,
    TrialProgress,
    TrialResult,
)
from learnloop_dataplane.api.route_input import (
    NOTHING_NEW,
    Caller,
    Callers,
    DigestHeader,
    Input,
    NamePath,
    Quota,
    Training,
    answer,
    json_body,
    only,
    same,
)
from learnloop_dataplane.registry.routes import BYTES, RAW_BODY, send
from learnloop_dataplane.training.runs import KEEP_CHECKPOINTS
from learnloop_dataplane.training.training_jobs import described

router = APIRouter(prefix="/api/v1/training", tags=["training"])
JobName = Annotated[str, Field(min_length=1, max_length=52, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]


class Start(Input):
    """A TrainingJob to create."""

    name: JobName | None = Field(default=None, description="left out: made from the agent and the Idempotency-Key")
    spec: TrainingJobSpec = Field(description="as in a manifest of kind TrainingJob")


class Stop(Input):
    """A TrainingJob to suspend; starting the same again resumes it from its newest checkpoint."""

    job: JobName


@router.post("/start", status_code=201, responses=NOTHING_NEW)
async def start(
    body: Annotated[Start, json_body(Start)],
    training: Training,
    caller: Caller,
    idempotency_key: Annotated[
        Identifier | None, Header(description="the same key starts the same job once, however often it is sent")
    ] = None,
) -> Response:
    """Creates a TrainingJob with the caller's rights; 200 when it was there already, resumed if stopped."""
    job, existing = await training.jobs.start(caller, body.spec, name=body.name, key=idempotency_key)
    return answer({**described(job), "duplicate": existing}, 200 if existing else 201)


@router.post("/stop")
async def stop(body: Annotated[Stop, json_body(Stop)], training: Training, caller: Caller) -> Response:
    """Suspends a TrainingJob with the caller's rights: the pods end, the newest checkpoint stays."""
    return answer(described(await training.jobs.stop(caller, body.job)))


@router.get("/status")
async def status(
    training: Training,
    caller: Caller,
    job: Annotated[JobName | None, Query(description="left out: all of the namespace, page by page")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[str | None, Query(max_length=4096, description="`next` of the page before")] = None,
) -> Response:
    """The status of one TrainingJob, or of all, by name."""
    if job is not None:
        return answer({"jobs": [described(await training.jobs.get(caller, job))], "next": None})
    jobs, following = await training.jobs.page(caller, limit, after)
    return answer({"jobs": [described(item) for item in jobs], "next": following})


runs = APIRouter(prefix="/api/v1/training/runs", tags=["training"])
MAX_STEP = 2**62


@runs.put("/{job}/heartbeat")
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


@runs.put("/{job}/status", dependencies=[only("update", "runs")])
async def put_status(
    job: NamePath, body: Annotated[TrainingStatus, json_body(TrainingStatus)], training: Training, caller: Caller
) -> Response:
    """Publishes that the run is queued, and its verdict; the same again is fine."""
    same("job", job, body.job)
    return answer({"job": job, "new": await training.runs.tell(caller.namespace, body)})


@runs.put("/{job}/checkpoint", openapi_extra=RAW_BODY)
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
    """Replaces the run's checkpoint in one step; `x-learnloop-agent` names the trained agent, `x-learnloop-attempt`
    the attempt of the gang (from 0), which must be the newest."""
    await callers.require_rank(caller, job, x_learnloop_attempt)
    async with training.artifacts.receive(request.stream(), x_learnloop_sha256) as upload:
        # Again: the pod may be gone by now, or a TrainingJob may have begun to wait for this run.
        attempt = await callers.require_rank(caller, job, x_learnloop_attempt, fresh=True)
        await quotas.room_for_bytes(caller.namespace, upload.size)
        step, agent = x_learnloop_step, x_learnloop_agent
        return answer(await training.runs.put_checkpoint(caller.namespace, job, step, upload, quotas, agent, attempt))


@runs.get("/{job}/checkpoint", response_class=StreamingResponse, responses={200: BYTES})
async def get_checkpoint(
    job: NamePath, training: Training, caller: Caller, back: Annotated[int, Query(ge=0, lt=KEEP_CHECKPOINTS)] = 0
) -> Response:
    """The newest checkpoint, or with `back` 1 the one before it; 404 when there is none."""
    info, content = await training.runs.get_checkpoint(caller.namespace, job, back)
    return send(content, {"x-learnloop-step": str(info.step)})


@runs.put("/{job}/proof")
async def put_proof(
    job: NamePath, body: Annotated[Proof, json_body(Proof)], training: Training, callers: Callers, caller: Caller
) -> Response:
    """Writes the proof of a finished run or update: once for each attempt of its gang."""
    same("job", job, body.job)
    await callers.require_rank(caller, job, body.attempts - 1, fresh=True)
    await training.runs.put_proof(caller.namespace, body)
    return answer({"job": job})


@runs.put("/{job}/update", response_model=UpdateOrder, dependencies=[only("update", "runs")])
async def put_update(
    job: NamePath, body: Annotated[UpdateOrder, json_body(UpdateOrder)], training: Training, caller: Caller
) -> Response:
    """Orders the next update of a rank that stays; the answer is the order that stands."""
    return answer(await training.runs.order_update(caller.namespace, job, body))


@runs.get("/{job}", response_model=TrainingRun)
async def get_run(job: NamePath, training: Training, caller: Caller) -> Response:
    """A run's heartbeat, checkpoint and proof; 404 when nothing was reported."""
    return answer(await training.runs.get(caller.namespace, job))


@runs.delete("/{job}", status_code=204, dependencies=[only("delete", "runs")])
async def delete_run(job: NamePath, training: Training, caller: Caller) -> Response:
    """Deletes a run and its checkpoints; artifacts stay."""
    await training.runs.delete(caller.namespace, job)
    return Response(status_code=204)


studies = APIRouter(prefix="/api/v1/training/studies", tags=["training"])
STUDIES = only("update", "studies")
"""The operator leads them."""
NumberPath = Annotated[int, Path(ge=0, lt=1000)]


@studies.put("/{job}", response_model=StudyState, dependencies=[STUDIES])
async def put_study(
    job: NamePath, body: Annotated[StudyOrder, json_body(StudyOrder)], training: Training, caller: Caller
) -> Response:
    """Begins a study; the same again changes nothing. Another owner's study of the same name is deleted."""
    same("job", job, body.job)
    return answer(await training.studies.ask(lambda studies: studies.put(caller.namespace, body)))


@studies.get("/{job}", response_model=StudyState)
async def get_study(job: NamePath, training: Training, caller: Caller) -> Response:
    """All trials of a study; 404 when there is none."""
    return answer(await training.studies.ask(lambda studies: studies.get(caller.namespace, job)))


@studies.delete("/{job}", status_code=204, dependencies=[only("delete", "studies")])
async def delete_study(job: NamePath, training: Training, caller: Caller) -> Response:
    """Deletes a study. Idempotent."""
    await training.studies.delete(caller.namespace, job)
    return Response(status_code=204)


@studies.put("/{job}/trials/{number}", response_model=Trial, dependencies=[STUDIES])
async def put_trial(job: NamePath, number: NumberPath, training: Training, caller: Caller) -> Response:
    """Begins a trial with parameters that the sampler chooses, once: the same number always has the same ones."""
    return answer(await training.studies.ask(lambda studies: studies.ask(caller.namespace, job, number)))


@studies.put("/{job}/trials/{number}/progress", response_model=Trial, dependencies=[STUDIES])
async def put_progress(
    job: NamePath,
    number: NumberPath,
    body: Annotated[TrialProgress, json_body(TrialProgress)],
    training: Training,
    caller: Caller,
) -> Response:
    """Keeps an intermediate value; the answer says whether the trial is to be stopped."""
    return answer(await training.studies.ask(lambda studies: studies.progress(caller.namespace, job, number, body)))


@studies.put("/{job}/trials/{number}/result", response_model=Trial, dependencies=[STUDIES])
async def put_result(
    job: NamePath,
    number: NumberPath,
    body: Annotated[TrialResult, json_body(TrialResult)],
    training: Training,
    caller: Caller,
) -> Response:
    """Keeps the end of a trial: the first that is reported."""
    return answer(await training.studies.ask(lambda studies: studies.result(caller.namespace, job, number, body)))
