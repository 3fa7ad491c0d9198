"""A person's order that stands in the policy's place, as the status of a ModelDeployment keeps it."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, Time
from learnloop_api.kinds.rollouts.decision import Person

Instead = Literal["fixed", "fallback", "stop"]
"""What is done instead of what the policy would do."""
MOST_OVERRIDES = 64
LONGEST_ANSWER, LONGEST_REASON, MOST_NUMBERS = 512, 200, 64


class OverrideStatus(Resource):
    """One override. Those that are over stay for a day: by them episodes are known that they have touched."""

    agent: ObjectName | None = Field(default=None, description="The agent it is about; left out: all.")
    instead: Instead = Field(
        description=(
            "fixed: one answer to everything; fallback: the agent's own fallback decides, or the gateway's; stop: "
            "nobody gets an answer."
        )
    )
    choice: int | None = Field(
        default=None, ge=-(2**31), le=2**31 - 1, description="fixed: the action, where it is one of several."
    )
    numbers: list[float] | None = Field(
        default=None, max_length=MOST_NUMBERS, description="fixed: the action, where it is made of numbers."
    )
    answer: Annotated[str, Field(max_length=LONGEST_ANSWER)] | None = Field(
        default=None, description="fixed: what a language model's users are told."
    )
    since: Time = Field(description="When the operator obeyed.")
    until: Time = Field(description="When it ends by itself, by the API server's clock; or when it was ended.")
    over: bool = Field(default=False, description="It is in force no longer.")
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = Field(description="Why, as the person said.")
    by: Person | None = Field(default=None, description="Who ordered it.")
    verified: bool | None = Field(default=None, description="true: the API server checked that name.")
