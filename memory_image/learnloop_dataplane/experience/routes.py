"""Routes of experience: episodes in, datasets out, and the schemas of events."""

from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from pydantic_core import to_json

from learnloop_api import events
from learnloop_api.wire.base import Name
from learnloop_api.wire.trajectory import (
    EpisodePage,
    EpisodeSelection,
    SimilarExperiences,
    SimilarQuestion,
    Trajectory,
)
from learnloop_dataplane.api.route_input import (
    Caller,
    Experience,
    JsonBody,
    answer,
    by_hand,
    data_plane,
    identify,
    json_body,
    not_found,
    quick,
)
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.experience import datasets

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
        trajectory: Trajectory = await _READ.receive(caller.namespace, await request.body())
    except RequestValidationError:
        data_plane(request).shared.metrics.not_collected(caller.namespace, "invalid")
        raise
    done = await data_plane(request).experience.intake.accept(caller.namespace, trajectory)
    identity = trajectory.trajectory_id
    return quick({"trajectory_id": identity, "duplicate": done.duplicate, "stored": done.stored}, 202)


episodes = APIRouter(prefix="/api/v1", tags=["experience"])
_AFTER = "^[0-9]{1,18}(,([A-Za-z0-9_.-]|~[2-9A-F][0-9A-F])+)?$"


class EpisodeQuery(EpisodeSelection, extra="ignore"):
    """An agent, a filter of its episodes, and a page of them."""

    agent: Name
    limit: int = Field(default=datasets.MOST, ge=1, le=datasets.MOST)
    after: str | None = Field(default=None, max_length=256, pattern=_AFTER, description="`next` of the page before")


@episodes.get("/experience/trajectories", response_model=EpisodePage)
async def get_trajectories(
    wanted: Annotated[EpisodeQuery, Query()], experience: Experience, caller: Caller
) -> Response:
    """Logged episodes to learn from, newest first. What arrives while somebody reads on moves no page."""
    place: datasets.Place | None = None
    if wanted.after is not None:
        time, *key = wanted.after.split(",")
        place = int(time), unquote(key[0].replace("~", "%")) if key else None
    body, following = await experience.datasets.page(caller.namespace, wanted.agent, wanted, wanted.limit, place)
    mark = None if following is None else str(following[0])
    if following is not None and following[1] is not None:
        mark = f"{mark},{quote(following[1], safe='').replace('~', '%7E').replace('%', '~')}"
    return Response(body + b',"next":%b}' % to_json(mark), media_type="application/json")


@episodes.post("/experience/similar", response_model=SimilarExperiences)
async def post_similar(
    body: Annotated[SimilarQuestion, json_body(SimilarQuestion)], experience: Experience, caller: Caller
) -> Response:
    """The recorded steps that began in the nearest states, among the newest 10,000 (fewer of long observations)."""
    return answer(await experience.nearest.nearest(caller.namespace, body.agent_id, body.state, body.k))


schemas = APIRouter(prefix="/api/v1/schemas", tags=["schemas"])
_SCHEMA: dict[str, Any] = {"content": {"application/schema+json": {"schema": {"type": "object"}}}}


class SchemaResponse(Response):
    """A JSON Schema."""

    media_type = "application/schema+json"


Subject = Annotated[str, Path(min_length=1, max_length=64)]


@schemas.get("")
async def list_schemas() -> Response:
    """Every event: its subject, without `.<namespace>.<name>`, and where its schema is."""
    return answer({"schemas": [{"subject": name, "href": f"/api/v1/schemas/{name}"} for name in events.EVENTS]})


@schemas.get("/{subject}", response_class=SchemaResponse, responses={200: _SCHEMA})
async def get_schema(subject: Subject) -> Response:
    """JSON Schema 2020-12 of one event's body."""
    if subject not in events.EVENTS:
        raise not_found("subject", subject, f"no such event; there are {', '.join(events.EVENTS)}")
    return SchemaResponse(events.path(subject).read_bytes())
