"""The right to erasure."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, model_validator

from learnloop_api.wire.base import Name
from learnloop_dataplane.api.http.dependencies import Caller, Input, Privacy, answer, only
from learnloop_dataplane.api.http.json_bodies import alternatives, json_body

router = APIRouter(prefix="/api/v1", tags=["users"])


class Erase(Input):
    """Whose data: exactly one person, or exactly one agent. There is no way to name all."""

    model_config = ConfigDict(json_schema_extra=alternatives("user_id", "agent_id", at_most_one=True))

    user_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="the person, as the application knows them, or their pseudonym user:<32 hex digits>"
    )
    agent_id: Name | None = None

    @model_validator(mode="after")
    def _one(self) -> "Erase":
        if (self.user_id is None) == (self.agent_id is None):
            raise ValueError("user_id: name either a user_id or an agent_id")
        return self


@router.post("/erasure", dependencies=[only("delete", "people")])
async def post_erasure(body: Annotated[Erase, json_body(Erase)], privacy: Privacy, caller: Caller) -> Response:
    """Erases all episodes, steps, rewards, feedback, memories, recalls and events of one person or agent, for good:
    replayed events do not bring them back. The answer is a signed receipt; the same again is fine."""
    return answer(await privacy.erasing.erase(caller.namespace, user_id=body.user_id, agent=body.agent_id))
