"""Which model serves: told by the operator, published as an event, kept as a record; and what its revisions earn."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from learnloop_api.wire.base import Identifier
from learnloop_api.wire.base import Name as NameRule
from learnloop_api.wire.deployment import ApprovalReference, AwaitedApproval, ModelDeployed, RolloutDecision
from learnloop_api.wire.outcomes import LONGEST_SECONDS, MOST_REVISIONS, DeploymentOutcomes
from learnloop_dataplane.api.http.dependencies import Caller, Db, NamePath, Training, answer, only, same
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.api.http.pagination import begins_after, following, page_mark
from learnloop_dataplane.rewards.revision_outcomes import revision_outcomes

router = APIRouter(prefix="/api/v1/models", tags=["models"])


@router.get("")
async def get_models(
    training: Training,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[NameRule | None, Query(description="`next` of the page before")] = None,
) -> Response:
    """What serves at each ModelDeployment of the namespace with its proof, and what was rolled back there last."""
    found = await training.deployments.models(caller.namespace, limit, after or "")
    return answer({"models": found, "next": found[-1].model_deployment if len(found) == limit else None})


@router.delete("/{deployment}", status_code=204, dependencies=[only("update", "deployments")])
async def delete_model(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """The ModelDeployment is gone: it leaves the list of models, and its record stays."""
    await training.deployments.forget(caller.namespace, deployment)
    await training.approvals.settled(caller.namespace, deployment)
    return Response(status_code=204)


@router.put("/{deployment}/rolled-back", dependencies=[only("update", "deployments")])
async def put_rolled_back(
    deployment: NamePath, body: Annotated[ModelDeployed, json_body(ModelDeployed)], training: Training, caller: Caller
) -> Response:
    """Records that a model was rolled back, and publishes it; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    same("event", "rolled_back", body.event)
    new = await training.deployments.roll_back(caller.namespace, body)
    return answer({"model_deployment": deployment, "revision": body.revision, "new": new})


@router.put("/{deployment}/deployed", dependencies=[only("update", "deployments")])
async def put_deployed(
    deployment: NamePath, body: Annotated[ModelDeployed, json_body(ModelDeployed)], training: Training, caller: Caller
) -> Response:
    """Records that a model serves now, and publishes it; the same again is fine (new: false)."""
    same("model_deployment", deployment, body.model_deployment)
    same("event", "deployed", body.event)
    new = await training.deployments.put(caller.namespace, body)
    return answer({"model_deployment": deployment, "revision": body.revision, "new": new})


@router.put("/{deployment}/awaited-approval", status_code=204, dependencies=[only("update", "deployments")])
async def put_awaited_approval(
    deployment: NamePath,
    body: Annotated[AwaitedApproval, json_body(AwaitedApproval)],
    training: Training,
    caller: Caller,
) -> Response:
    """A rollout waits for a person: receivers are told, now and by the rules of escalation; the same again is fine."""
    same("model_deployment", deployment, body.model_deployment)
    await training.approvals.asked(caller.namespace, body)
    return Response(status_code=204)


@router.delete("/{deployment}/awaited-approval", status_code=204, dependencies=[only("update", "deployments")])
async def delete_awaited_approval(deployment: NamePath, training: Training, caller: Caller) -> Response:
    """Nobody is waited for any more: what receivers have not been told they are not told."""
    await training.approvals.settled(caller.namespace, deployment)
    return Response(status_code=204)


@router.post("/{deployment}/approval-reference")
async def post_approval_reference(
    deployment: NamePath,
    body: Annotated[ApprovalReference, json_body(ApprovalReference)],
    training: Training,
    caller: Caller,
) -> Response:
    """What a signed reference of a message is about: revision, step, and until when it holds. It grants nothing."""
    return answer(training.approvals.about(caller.namespace, deployment, body.reference))


@router.put("/{deployment}/decisions/{decision}", dependencies=[only("update", "deployments")])
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


@router.get("/{deployment}/deployed")
async def get_deployed(
    deployment: NamePath,
    training: Training,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, page_mark(1)] = None,
) -> Response:
    """What served when, newest first, page by page, as far back as the retention time."""
    found, more = await training.deployments.history(caller.namespace, deployment, limit, begins_after(after))
    return answer({"deployed": found, "next": following(*more) if more else None})


@router.get("/{deployment}/outcomes", response_model=DeploymentOutcomes)
async def get_outcomes(
    deployment: NamePath,
    revision: Annotated[list[Identifier], Query(min_length=1, max_length=MOST_REVISIONS)],
    seconds: Annotated[int, Query(ge=1, le=LONGEST_SECONDS)],
    db: Db,
    caller: Caller,
) -> Response:
    """Rewards and people's opinions of the episodes of each revision that arrived in the last seconds."""
    return answer(await revision_outcomes(db, caller.namespace, deployment, revision, seconds))
