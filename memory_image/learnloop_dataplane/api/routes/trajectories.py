"""POST /api/v1/trajectories: the way in for agents that do not speak NATS."""

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError

from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.api.http.dependencies import by_hand, data_plane, identify, quick
from learnloop_dataplane.api.http.json_bodies import JsonBody
from learnloop_dataplane.errors import ApiError

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
    caller = await identify(request)
    try:
        data_plane(request).shared.rate.admit(caller.namespace)
    except ApiError:
        data_plane(request).shared.metrics.not_collected(caller.namespace, "over_quota")
        raise
    try:
        trajectory: Trajectory = await _READ.read(caller.namespace, await request.body())
    except RequestValidationError:
        data_plane(request).shared.metrics.not_collected(caller.namespace, "invalid")
        raise
    done = await data_plane(request).experience.intake.accept(caller.namespace, trajectory)
    identity = trajectory.trajectory_id
    return quick({"trajectory_id": identity, "duplicate": done.duplicate, "stored": done.stored}, 202)
