"""Routes of people's rights: opt-out, erasure, opinions and preferences."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import ConfigDict, Field, model_validator

from learnloop_api.wire import base, language
from learnloop_dataplane.api.route_input import (
    NOTHING_NEW,
    Caller,
    Experience,
    Input,
    Privacy,
    alternatives,
    answer,
    json_body,
    only,
)
from learnloop_dataplane.experience.trajectories import MOST

router = APIRouter(prefix="/api/v1", tags=["users"])


class Erase(Input):
    """Exactly one person, or exactly one agent; nothing names all."""

    model_config = ConfigDict(json_schema_extra=alternatives("user_id", "agent_id", at_most_one=True))

    user_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="the person, as the application knows them, or their pseudonym user:<32 hex digits>"
    )
    agent_id: base.Name | None = None

    @model_validator(mode="after")
    def _one(self) -> "Erase":
        if (self.user_id is None) == (self.agent_id is None):
            raise ValueError("user_id: name either a user_id or an agent_id")
        return self


@router.post("/erasure", dependencies=[only("delete", "people")])
async def post_erasure(body: Annotated[Erase, json_body(Erase)], privacy: Privacy, caller: Caller) -> Response:
    """Erases all episodes, steps, rewards, feedback, memories, recalls and events of one person or agent, for good:
    replayed events do not bring them back. The answer is a receipt; the same again is fine."""
    return answer(await privacy.erasing.erase(caller.namespace, user_id=body.user_id, agent=body.agent_id))


people = APIRouter(prefix="/api/v1", tags=["users"])
User = Annotated[str, Field(min_length=1, max_length=256, description="the person, as the application knows them")]
After = Annotated[str | None, Query(max_length=18, pattern="^[0-9]+$", description="`next` of the page before")]
UserPath = Annotated[str, Path(min_length=1, max_length=256)]


class Opinion(Input):
    """One person's opinion about one episode: thumbs or stars. A later one replaces it."""

    model_config = ConfigDict(json_schema_extra=alternatives("thumbs", "stars", at_most_one=True))

    trajectory_id: base.Identifier
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


@people.post("/feedback")
async def post_feedback(
    body: Annotated[Opinion, json_body(Opinion)], experience: Experience, caller: Caller
) -> Response:
    """Keeps an opinion; it becomes part of the episode's reward. stored: false when the person opted out."""
    stored = await experience.opinions.give(caller.namespace, body.trajectory_id, body.user_id, body.value)
    return answer({"trajectory_id": body.trajectory_id, "stored": stored})


@people.post("/preferences", status_code=201, responses=NOTHING_NEW)
async def post_preference(
    body: Annotated[language.Preference, json_body(language.Preference)], experience: Experience, caller: Caller
) -> Response:
    """Keeps a preference. 201: it is new and durable; 200: it was there already, or is not kept.

    stored: false when its `user_id` opted out, or the person or the agent was erased after `at`. User ids are hashed
    and texts are redacted before anything keeps them.
    """
    done = await experience.preferences.give(caller.namespace, body)
    stored = {"preference_id": body.preference_id, "duplicate": done.duplicate, "stored": done.stored}
    return answer(stored, 201 if done.stored and not done.duplicate else 200)


@people.get("/preferences", response_model=language.PreferencePage)
async def get_preferences(
    agent: Annotated[base.Name, Query()],
    experience: Experience,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    after: After = None,
) -> Response:
    """An agent's preferences, newest first. What arrives while somebody reads on moves no page."""
    body = await experience.preferences.page(caller.namespace, agent, limit, after)
    return Response(body, media_type="application/json")


@people.put("/users/{user_id}/opt-out", status_code=204, dependencies=[only("update", "people")])
async def opt_out(user_id: UserPath, privacy: Privacy, caller: Caller) -> Response:
    """From now on nothing of this person is stored; what is there of them is erased."""
    await privacy.erasing.opt_out(caller.namespace, user_id)
    return Response(status_code=204)


@people.delete("/users/{user_id}/opt-out", status_code=204, dependencies=[only("update", "people")])
async def opt_in(user_id: UserPath, privacy: Privacy, caller: Caller) -> Response:
    """Ends the opt-out."""
    await privacy.erasing.opt_in(caller.namespace, user_id)
    return Response(status_code=204)
