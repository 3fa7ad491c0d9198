"""Starting, stopping and watching TrainingJobs (specification 000)."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.base import Identifier
from learnloop_dataplane.api.http.dependencies import NOTHING_NEW, Caller, Input, Training, answer
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.kubernetes.training_jobs import described

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
    job, known = await training.jobs.start(caller, body.spec, name=body.name, key=idempotency_key)
    return answer({**described(job), "duplicate": known}, 200 if known else 201)


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
    """How one TrainingJob is doing, or every one, by name."""
    if job is not None:
        return answer({"jobs": [described(await training.jobs.get(caller, job))], "next": None})
    jobs, following = await training.jobs.page(caller, limit, after)
    return answer({"jobs": [described(item) for item in jobs], "next": following})
