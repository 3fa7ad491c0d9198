"""Decisions of people: orders to a rollout, and overrides in the policy's place."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, Revision, ShortText, Time

Verb = Literal[
    "abort", "approve", "override", "pause", "promote", "reject", "restart", "resume", "retry", "skip", "undo"
]
Person = Annotated[str, Field(max_length=256)]


class AnsweredDecision(Resource):
    """One value of an annotation `learnloop.dev/<verb>`, answered once."""

    verb: Verb = Field(description="The annotation, without learnloop.dev/.")
    revision: Revision | None = Field(default=None, description="The revision it names.")
    step: int | None = Field(default=None, ge=1, le=1000, description="The step it names, from 1.")
    by: Person | None = Field(default=None, description="Who decided; left out where the value does not say.")
    verified: bool | None = Field(
        default=None,
        description=(
            "true: the installation's admission policy lets no one write another's name. Left out: as claimed."
        ),
    )
    at: Time = Field(description="When the operator answered.")
    outcome: Literal["obeyed", "ignored", "refused"] = Field(
        description="ignored: it fits nothing that is there, e.g. another revision; refused: it would do harm."
    )
    message: ShortText = Field(description="One sentence: what was done, or why not.")
    value: ShortText = Field(description="The annotation's value: the same one is not answered twice.")


class Hand(Resource):
    """A person's order that is in force."""

    verb: Literal["pause", "promote", "undo"] = Field(
        description=(
            "pause: hold at this weight; promote: to 100 % without the rest of the evidence; undo: back to lastStable."
        )
    )
    by: Person | None = Field(default=None, description="Who gave it, in words.")
    at: Time = Field(description="Since when.")


class PastModel(Resource):
    """A model that served before."""

    uri: Annotated[str, Field(min_length=1, max_length=2048)] = Field(description="Address of the model.")
    sha256: Annotated[str, Field(max_length=64)] | None = Field(default=None, description="Digest of the model.")


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
            "no request gets an answer."
        )
    )
    choice: int | None = Field(
        default=None, ge=-(2**31), le=2**31 - 1, description="fixed: the action, where it is one of several."
    )
    numbers: list[float] | None = Field(
        default=None, max_length=MOST_NUMBERS, description="fixed: the action, where it is made of numbers."
    )
    answer: Annotated[str, Field(max_length=LONGEST_ANSWER)] | None = Field(
        default=None, description="fixed: the text that a language model's users get."
    )
    since: Time = Field(description="When the operator obeyed.")
    until: Time = Field(description="When it ends by itself, by the API server's clock; or when it was ended.")
    over: bool = Field(default=False, description="It is in force no longer.")
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = Field(description="Why, as the person said.")
    by: Person | None = Field(default=None, description="Who ordered it.")
    verified: bool | None = Field(default=None, description="true: the API server checked that name.")
