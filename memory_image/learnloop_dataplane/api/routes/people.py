"""Feedback of people on episodes, and their right to be left out."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import ConfigDict, Field, model_validator

from learnloop_api.wire.base import Identifier
from learnloop_dataplane.api.http.dependencies import Caller, Experience, Input, Privacy, answer, only
from learnloop_dataplane.api.http.json_bodies import alternatives, json_body

router = APIRouter(prefix="/api/v1", tags=["users"])
User = Annotated[str, Field(min_length=1, max_length=256, description="the person, as the application knows them")]
UserPath = Annotated[str, Path(min_length=1, max_length=256)]


class Opinion(Input):
    """One person's opinion about one episode: thumbs or stars. A later one replaces it."""

    model_config = ConfigDict(json_schema_extra=alternatives("thumbs", "stars", at_most_one=True))

    trajectory_id: Identifier
    user_id: User
    thumbs: Literal["up", "down"] | None = None
    stars: int | None = Field(default=None, ge=1, le=5, description="3 is neutral")

    @model_validator(mode="after")
    def _one_scale(self) -> "Opinion":
        if (self.thumbs is None) == (self.stars is None):
            raise ValueError("thumbs: send either thumbs or stars")
        return self

    @property
    def value(self) -> float:
        """-1 to 1."""
        if self.stars is not None:
            return (self.stars - 3) / 2
        return 1.0 if self.thumbs == "up" else -1.0


@router.post("/feedback")
async def post_feedback(
    body: Annotated[Opinion, json_body(Opinion)], experience: Experience, caller: Caller
) -> Response:
    """Keeps an opinion; it becomes part of the episode's reward. stored: false when the person opted out."""
    stored = await experience.opinions.give(caller.namespace, body.trajectory_id, body.user_id, body.value)
    return answer({"trajectory_id": body.trajectory_id, "stored": stored})


@router.put("/users/{user_id}/opt-out", status_code=204, dependencies=[only("update", "people")])
async def opt_out(user_id: UserPath, privacy: Privacy, caller: Caller) -> Response:
    """From now on nothing of this person is stored; what is there of them is erased."""
    await privacy.erasing.opt_out(caller.namespace, user_id)
    return Response(status_code=204)


@router.delete("/users/{user_id}/opt-out", status_code=204, dependencies=[only("update", "people")])
async def opt_in(user_id: UserPath, privacy: Privacy, caller: Caller) -> Response:
    """Takes the opt-out back."""
    await privacy.users.opt_in(caller.namespace, user_id)
    return Response(status_code=204)
