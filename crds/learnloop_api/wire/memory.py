"""Memory budgets: what an agent may keep, and what it keeps."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.wire.base import MOST, Name, Timestamp, WireModel

MOST_MEMORIES = 10_000_000
Limit = Annotated[int, Field(ge=0, le=MOST_MEMORIES)]
MemoryKind = Literal["episodic", "semantic", "procedural", "working"]


class MemoryBudget(WireModel):
    """PUT /api/v1/agents/{agent}/memory-budget. A limit that is left out is none; pinned memories stay above any."""

    memories: int | None = Field(default=None, ge=0, le=MOST_MEMORIES, description="of all types together")
    bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="what their content and text take in PostgreSQL, without index and vectors",
    )
    per_type: dict[MemoryKind, Limit] = Field(default_factory=dict, max_length=4, description="memories of one type")

    def within(self, limit: "MemoryBudget") -> "MemoryBudget":
        """The smaller of the two, limit by limit."""
        kinds = {*self.per_type, *limit.per_type}
        return MemoryBudget(
            memories=_smaller(self.memories, limit.memories),
            bytes=_smaller(self.bytes, limit.bytes),
            per_type={kind: min(_given(self.per_type.get(kind), limit.per_type.get(kind))) for kind in kinds},
        )


class MemoryUse(WireModel):
    """GET /api/v1/agents/{agent}/memory-budget: measured after every pass that forgets, about once a minute."""

    agent: Name
    own: MemoryBudget | None = Field(default=None, description="as it was put; null: only the service's limit holds")
    budget: MemoryBudget = Field(description="what holds: of its own and the service's, the smaller limits")
    memories: int | None = Field(default=None, ge=0, description="null: not measured yet")
    bytes: int | None = Field(default=None, ge=0)
    pinned: int | None = Field(default=None, ge=0, description="of these memories, how many are pinned")
    pinned_above: list[str] = Field(
        default_factory=list, max_length=6, description="limits that pinned memories alone exceed, e.g. memories"
    )
    forgotten: int = Field(default=0, ge=0, description="by this budget, since it was first put")
    last_forgotten: int = Field(default=0, ge=0, description="in the newest pass that forgot any")
    last_forgotten_at: Timestamp | None = None


def _given(*limits: int | None) -> list[int]:
    return [limit for limit in limits if limit is not None]


def _smaller(one: int | None, other: int | None) -> int | None:
    return min(_given(one, other), default=None)
