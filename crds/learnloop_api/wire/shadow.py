"""Copies of live requests: what stable's policy servers tell an arm in shadow. POST /v1/shadow, answered 202.

The arm runs its own policy on every observation, compares, counts, and keeps the result to itself.
"""

from typing import Literal

from pydantic import Field

from learnloop_api.wire.base import Identifier, LogProb, WireModel

MAX_ITEMS = 64


class ShadowDecision(WireModel):
    """One observation and what stable made of it."""

    episode_id: Identifier | None = Field(default=None, description="absent for requests that know no episodes")
    observation: list[float] = Field(min_length=1, max_length=65_536)
    greedy: int | list[float] = Field(description="the action stable thinks best")
    action: int | list[float] | None = Field(default=None, description="the action stable took, when it drew it")
    log_prob: LogProb | None = Field(
        default=None, description="natural log of its probability under stable, or of its density"
    )


class Ending(WireModel):
    """How an episode ended that stable played."""

    episode_id: Identifier
    status: Literal["completed", "error", "withdrawn"]
    episode_return: float
    length: int = Field(ge=0)


class ShadowBatch(WireModel):
    """Decisions come before endings: an ending follows all decisions of its episode that were copied."""

    revision: str = Field(pattern=r"^[0-9a-f]{8}$", description="the arm these copies are for")
    decisions: list[ShadowDecision] = Field(default_factory=list, max_length=MAX_ITEMS)
    endings: list[Ending] = Field(default_factory=list, max_length=MAX_ITEMS)
