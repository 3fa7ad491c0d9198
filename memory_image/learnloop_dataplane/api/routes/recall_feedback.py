"""Feedback on recalls, and what an agent's ranker has learned from it."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field, model_validator

from learnloop_api.wire.base import Name
from learnloop_dataplane.api.http.dependencies import Caller, Input, Memory, answer
from learnloop_dataplane.api.http.json_bodies import alternatives, json_body

router = APIRouter(prefix="/api/v1/memory", tags=["memory"])


class GiveFeedback(Input):
    """How a recall turned out. Episodes that name their recalls need not send this: their reward teaches by itself."""

    model_config = ConfigDict(json_schema_extra=alternatives("reward", "helpful", at_most_one=True))

    retrieval_id: UUID
    reward: float | None = Field(default=None, ge=-100, le=100, description="of what the agent did with the answer")
    helpful: list[UUID] | None = Field(default=None, max_length=120, description="the memories that helped")

    @model_validator(mode="after")
    def _says_something(self) -> "GiveFeedback":
        if (self.reward is None) == (self.helpful is None):
            raise ValueError("reward: send either a reward or the list of helpful memories")
        return self


@router.post("/feedback")
async def give_feedback(
    body: Annotated[GiveFeedback, json_body(GiveFeedback)], memory: Memory, caller: Caller
) -> Response:
    """Teaches the agent's ranker and its memories' utility; the same recall teaches once."""
    found = await memory.feedback.give(caller.namespace, body.retrieval_id, reward=body.reward, helpful=body.helpful)
    return answer(found)


@router.get("/ranker")
async def get_ranker(agent_id: Annotated[Name, Query()], memory: Memory, caller: Caller) -> Response:
    """What the agent's ranker has learned, and whether it is in use."""
    return answer(await memory.feedback.ranker(caller.namespace, agent_id))
