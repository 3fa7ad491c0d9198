"""Logged episodes, to learn from."""

from typing import Annotated, Literal
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field
from pydantic_core import to_json

from learnloop_api.wire.base import Name, Real, Timestamp
from learnloop_api.wire.experience import MOST_CHOICES, EpisodePage, EpisodeSelection
from learnloop_dataplane.api.http.dependencies import Caller, Experience
from learnloop_dataplane.experience import datasets

router = APIRouter(prefix="/api/v1", tags=["experience"])
_AFTER = "^[0-9]{1,18}(,([A-Za-z0-9_.-]|~[2-9A-F][0-9A-F])+)?$"
Revision = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Choices = Annotated[list[Annotated[str, Field(max_length=1024, pattern=r"^[^\x00]*$")]], Query(max_length=MOST_CHOICES)]


def _selection(
    source: Literal["postgresql", "clickhouse"] = "postgresql",
    since: Annotated[Timestamp | None, Query(description="received then or later")] = None,
    until: Annotated[Timestamp | None, Query(description="received before then")] = None,
    task: Choices = [],  # noqa: B006 - FastAPI copies it
    model_revision: Choices = [],  # noqa: B006
    min_reward: Annotated[Real | None, Query(description="of the reward its RewardPolicy gave")] = None,
    max_reward: Annotated[Real | None, Query()] = None,
    success: bool | None = None,
    opted_in: Annotated[bool, Query(description='only those whose metadata says `opted_in: "true"`')] = False,
    reward_policy: Annotated[Name | None, Query(description="whose evaluators' scores come with the episodes")] = None,
    reward_policy_revision: Annotated[Revision | None, Query()] = None,
) -> EpisodeSelection:
    return EpisodeSelection(
        source=source,
        since=since,
        until=until,
        tasks=task,
        model_revisions=model_revision,
        min_reward=min_reward,
        max_reward=max_reward,
        success=success,
        opted_in=opted_in,
        reward_policy=reward_policy,
        reward_policy_revision=reward_policy_revision,
    )


@router.get("/experience/trajectories", response_model=EpisodePage)
async def get_trajectories(
    agent: Annotated[Name, Query()],
    experience: Experience,
    caller: Caller,
    wanted: Annotated[EpisodeSelection, Depends(_selection)],
    limit: Annotated[int, Query(ge=1, le=datasets.MOST)] = datasets.MOST,
    after: Annotated[str | None, Query(max_length=256, pattern=_AFTER, description="`next` of the page before")] = None,
) -> Response:
    """Logged episodes to learn from, newest first. What arrives while somebody reads on moves no page."""
    place: datasets.Place | None = None
    if after is not None:
        time, *key = after.split(",")
        place = int(time), unquote(key[0].replace("~", "%")) if key else None
    body, following = await experience.datasets.page(caller.namespace, agent, wanted, limit, place)
    mark = None if following is None else str(following[0])
    if following is not None and following[1] is not None:
        mark = f"{mark},{quote(following[1], safe='').replace('~', '%7E').replace('%', '~')}"
    return Response(body + b',"next":%b}' % to_json(mark), media_type="application/json")
