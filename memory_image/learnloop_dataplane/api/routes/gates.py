"""Gates: reports of suites about candidates, and how the operator judged them."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from learnloop_api.wire.gates import MOST_REPORT_BYTES, GateReports, JudgedGates
from learnloop_dataplane.api.http.dependencies import (
    Caller,
    Callers,
    DigestHeader,
    NamePath,
    Training,
    answer,
    only,
    same,
)
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.api.routes.artifacts import RAW_BODY

router = APIRouter(prefix="/api/v1/models", tags=["models"])


@router.put("/{deployment}/gates/{job}/report", status_code=201, openapi_extra=RAW_BODY)
async def put_report(
    deployment: NamePath,
    job: NamePath,
    request: Request,
    training: Training,
    callers: Callers,
    caller: Caller,
    x_learnloop_sha256: DigestHeader,
) -> Response:
    """Keeps the report of a gate suite under its SHA-256, once. Its Job's own pods only."""
    await callers.require_suite(caller, deployment, job)
    async with training.artifacts.receive(request.stream(), x_learnloop_sha256, MOST_REPORT_BYTES) as upload:
        new = await training.gates.put(caller.namespace, deployment, job, upload)
    return answer({"job": job, "sha256": upload.sha256, "new": new}, 201)


@router.get("/{deployment}/gates", response_model=GateReports)
async def get_reports(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """The newest reports of a ModelDeployment's gate suites, newest first."""
    return answer(await training.gates.reports(caller.namespace, deployment))


@router.put("/{deployment}/gates/{revision}/verdict", dependencies=[only("update", "deployments")])
async def put_verdict(
    deployment: NamePath,
    revision: NamePath,
    body: Annotated[JudgedGates, json_body(JudgedGates)],
    training: Training,
    caller: Caller,
) -> Response:
    """Records how a candidate's gates ended, in the audit chain; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    same("revision", revision, body.revision)
    return answer({"revision": revision, "new": await training.gates.judged(caller.namespace, body)})
