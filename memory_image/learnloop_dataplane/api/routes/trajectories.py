"""POST /api/v1/trajectories: the way in for agents that do not speak NATS."""

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from learnloop_api import names
from learnloop_api.redaction_fields import safe_measurements
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, Trajectory
from learnloop_dataplane.api.http.dependencies import by_hand, identify, quick
from learnloop_dataplane.api.http.json_bodies import JsonBody
from learnloop_dataplane.errors import NoRoom
from learnloop_dataplane.experience.trajectory_store import prepare, store
from learnloop_dataplane.nats.subjects import tenants_id
from learnloop_dataplane.privacy.redaction import redact, redact_text
from learnloop_dataplane.service import Service

router = APIRouter(prefix="/api/v1", tags=["experience"])
_READ = JsonBody(Trajectory)


@router.post("/trajectories", status_code=202, openapi_extra=by_hand(Trajectory))
async def post_trajectory(request: Request) -> Response:
    """Accepts one episode. 202 means durable: JetStream acknowledged it, or PostgreSQL committed it.

    Where the stream is full of unread episodes, those of a namespace that has its equal share of them or more are
    refused with 503 and `Retry-After`.
    stored: false when its `metadata.user_id` opted out or it was erased; other user ids are hashed before anything
    keeps them.
    """
    service, caller = await identify(request)
    trajectory: Trajectory = _READ.read(await request.body())
    shielded = (await service.users.shield(caller.namespace, {0: trajectory}))[0]
    if shielded is None:
        service.metrics.opted_out(caller.namespace)
        return _accepted(trajectory, duplicate=False, stored=False)
    trajectory = shielded
    if service.bus is None or service.room is None:
        return await _stored(service, caller.namespace, trajectory)
    subject = f"{names.SUBJECT_TRAJECTORY}.{caller.namespace}.{trajectory.agent}"
    # What came by NATS already is known again: the SDK sends this id there.
    message_id = tenants_id(caller.namespace, subject, f"{caller.namespace}/{trajectory.trajectory_id}")
    try:
        ack = await service.bus.publish(subject, redacted(trajectory), message_id)
    except NoRoom:
        # Full of others' episodes, of which there is no end: this one need not wait behind them.
        service.room.admit(caller.namespace)
        return await _stored(service, caller.namespace, trajectory)
    return _accepted(trajectory, duplicate=bool(ack.duplicate))


async def _stored(service: Service, namespace: str, trajectory: Trajectory) -> Response:
    """Straight into PostgreSQL."""
    stored = await store(service.db, namespace, [prepare(trajectory)])
    if stored.refused:
        return _accepted(trajectory, duplicate=False, stored=False)
    if stored.new:
        service.metrics.trajectory(namespace, trajectory.agent)
        service.arrived(namespace)
    return _accepted(trajectory, duplicate=not stored.new)


def _accepted(trajectory: Trajectory, *, duplicate: bool, stored: bool = True) -> Response:
    return quick({"trajectory_id": trajectory.trajectory_id, "duplicate": duplicate, "stored": stored}, 202)


def redacted(trajectory: Trajectory) -> bytes:
    """The message as it may lie in the stream for a month."""
    body = trajectory.model_dump()
    for field in ("metadata", "steps"):
        body[field] = redact(body[field])
    body["task"] = redact_text(trajectory.task)[:MAX_TASK]  # a mark may be longer than what it stands for
    body["policy_revision"] = redact_text(trajectory.policy_revision)[:MAX_REVISION]
    body["outcome"]["values"] = safe_measurements(trajectory.outcome.values, redact_text)
    return to_json(body)
