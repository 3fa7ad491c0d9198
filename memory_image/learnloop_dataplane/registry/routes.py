"""Routes of artifacts, models, gate reports and quotas."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from learnloop_api.wire.base import Identifier, Name, Name as NameRule, Sha256
from learnloop_api.wire.deployment import (
    LONGEST_SECONDS,
    MOST_REPORT_BYTES,
    MOST_REVISIONS,
    AwaitedApproval,
    DeploymentOutcomes,
    GateReports,
    JudgedGates,
    ModelDeployed,
    RolloutDecision,
)
from learnloop_api.wire.trajectory import MAX_REVISION
from learnloop_dataplane.api.route_input import (
    Caller,
    Callers,
    Db,
    DigestHeader,
    DigestPath,
    Input,
    NamePath,
    Quota,
    Training,
    answer,
    begins_after,
    following,
    json_body,
    only,
    page_mark,
    same,
)
from learnloop_dataplane.registry import artifacts, deployments

router = APIRouter(prefix="/api/v1/artifacts", tags=["artifacts"])
Revision = Annotated[Identifier, Field(max_length=MAX_REVISION)]
BYTES: dict[str, Any] = {
    "description": "The bytes; their SHA-256 is in the header x-learnloop-sha256.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}

RAW_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
    }
}


@router.put("", status_code=201, openapi_extra=RAW_BODY)
async def put_artifact(
    request: Request, training: Training, quotas: Quota, caller: Caller, x_learnloop_sha256: DigestHeader
) -> Response:
    """Keeps the raw body under its SHA-256."""
    async with training.artifacts.receive(request.stream(), x_learnloop_sha256) as upload:
        await quotas.room_for_bytes(caller.namespace, upload.size)
        await training.artifacts.put(caller.namespace, upload, quotas)
    uri = f"learnloop://{caller.namespace}/{upload.sha256}"
    return answer({"uri": uri, "sha256": upload.sha256, "size_bytes": upload.size}, 201)


class InUse(Input):
    """The artifacts and runs that a namespace needs, by the operator's account."""

    sha256: list[Sha256] = Field(max_length=20_000, description="artifacts that serve, or may have to serve again")
    jobs: list[Name] = Field(max_length=20_000, description="training runs that may go on: their checkpoints stay")


@router.put("/in-use")
async def put_in_use(
    body: Annotated[InUse, json_body(InUse)], training: Training, callers: Callers, caller: Caller
) -> Response:
    """Keeps what is named, and deletes a batch of what has not been in use for the time of retention. Operator only."""
    callers.require_operator(caller, "only the operator knows what is in use")
    gone = await training.keeping.run(caller.namespace, body.sha256, body.jobs)
    return answer({"artifacts_deleted": gone.artifacts, "checkpoints_deleted": gone.checkpoints})


class _Digest(Convertor[str]):
    """A digest in a path. `in-use` is another resource, which answers 405 to GET."""

    regex = "(?!in-use$)[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("digest", _Digest())


@router.get("/{sha256:digest}", response_class=StreamingResponse, responses={200: BYTES})
async def get_artifact(sha256: DigestPath, training: Training, caller: Caller) -> Response:
    """The bytes; compare their digest."""
    return send(await training.artifacts.get(caller.namespace, sha256))


def send(content: artifacts.Content, headers: dict[str, str] | None = None) -> Response:
    """Streams a blob with its digest and length in the headers."""
    return StreamingResponse(
        content.chunks,
        media_type="application/octet-stream",
        headers={
            "x-learnloop-sha256": content.sha256,
            "content-length": str(content.size),
            **(headers or {}),
        },
    )


models = APIRouter(prefix="/api/v1/models", tags=["models"])


@models.get("")
async def get_models(
    training: Training,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[NameRule | None, Query(description="`next` of the page before")] = None,
) -> Response:
    """The serving model of each ModelDeployment with its proof, and the last rollback."""
    models = await training.deployments.models(caller.namespace, limit, after or "")
    return answer({"models": models, "next": models[-1].model_deployment if len(models) == limit else None})


@models.delete("/{deployment}", status_code=204, dependencies=[only("update", "deployments")])
async def delete_model(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """The ModelDeployment is gone: it leaves the list of models, and its record stays."""
    await training.deployments.forget(caller.namespace, deployment)
    await training.approvals.settle(caller.namespace, deployment)
    return Response(status_code=204)


@models.put("/{deployment}/rolled-back", dependencies=[only("update", "deployments")])
async def put_rolled_back(
    deployment: NamePath, body: Annotated[ModelDeployed, json_body(ModelDeployed)], training: Training, caller: Caller
) -> Response:
    """Records that a model was rolled back, and publishes it; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    same("event", "rolled_back", body.event)
    new = await training.deployments.roll_back(caller.namespace, body)
    return answer({"model_deployment": deployment, "revision": body.revision, "new": new})


@models.put("/{deployment}/deployed", dependencies=[only("update", "deployments")])
async def put_deployed(
    deployment: NamePath, body: Annotated[ModelDeployed, json_body(ModelDeployed)], training: Training, caller: Caller
) -> Response:
    """Records that a model serves now, and publishes it; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    same("event", "deployed", body.event)
    new = await training.deployments.put(caller.namespace, body)
    return answer({"model_deployment": deployment, "revision": body.revision, "new": new})


@models.put("/{deployment}/awaited-approval", status_code=204, dependencies=[only("update", "deployments")])
async def put_awaited_approval(
    deployment: NamePath,
    body: Annotated[AwaitedApproval, json_body(AwaitedApproval)],
    training: Training,
    caller: Caller,
) -> Response:
    """A rollout waits for a person: the webhook gets a message, and another one as an escalation. Idempotent."""
    same("model_deployment", deployment, body.model_deployment)
    await training.approvals.ask(caller.namespace, body)
    return Response(status_code=204)


@models.delete("/{deployment}/awaited-approval", status_code=204, dependencies=[only("update", "deployments")])
async def delete_awaited_approval(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """The rollout waits no longer: messages that were not sent yet are not sent."""
    await training.approvals.settle(caller.namespace, deployment)
    return Response(status_code=204)


@models.put("/{deployment}/decisions/{decision}", dependencies=[only("update", "deployments")])
async def put_decision(
    deployment: NamePath,
    decision: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")],
    body: Annotated[RolloutDecision, json_body(RolloutDecision)],
    training: Training,
    caller: Caller,
) -> Response:
    """Puts a person's decision about a rollout into the audit chain; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    return answer({"new": await training.deployments.decided(caller.namespace, decision, body)})


@models.get("/{deployment}/deployed")
async def get_deployed(
    deployment: NamePath,
    training: Training,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, page_mark(1)] = None,
) -> Response:
    """The history of serving models, newest first, page by page, within the retention time."""
    changes, more = await training.deployments.history(caller.namespace, deployment, limit, begins_after(after))
    return answer({"deployed": changes, "next": following(*more) if more else None})


@models.get("/{deployment}/outcomes", response_model=DeploymentOutcomes)
async def get_outcomes(
    deployment: NamePath,
    revision: Annotated[list[Revision], Query(min_length=1, max_length=MOST_REVISIONS)],
    seconds: Annotated[int, Query(ge=1, le=LONGEST_SECONDS)],
    db: Db,
    caller: Caller,
) -> Response:
    """Rewards and people's opinions of the episodes of each revision that arrived in the last seconds."""
    return answer(await deployments.revision_outcomes(db, caller.namespace, deployment, revision, seconds))


gates = APIRouter(prefix="/api/v1/models", tags=["models"])


@gates.put("/{deployment}/gates/{job}/report", status_code=201, openapi_extra=RAW_BODY)
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


@gates.get("/{deployment}/gates", response_model=GateReports)
async def get_reports(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """The newest reports of a ModelDeployment's gate suites, newest first."""
    return answer(await training.gates.reports(caller.namespace, deployment))


@gates.put("/{deployment}/gates/{revision}/verdict", dependencies=[only("update", "deployments")])
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


quotas = APIRouter(prefix="/api/v1/quotas", tags=["quotas"])


@quotas.get("")
async def get_quotas(quotas: Quota, caller: Caller) -> Response:
    """Used and allowed bytes of artifacts and checkpoints, memories, and episodes a second; null: no limit."""
    return answer(await quotas.shown(caller.namespace))
