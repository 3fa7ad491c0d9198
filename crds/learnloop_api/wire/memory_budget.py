"""Memory budgets: what an agent may keep, and what it keeps.

A MemoryService's pods read the budgets that LearningAgents give themselves in the key `budgets.json` of the ConfigMap
`<memory service>-budgets`: the operator writes it whole and sends no request there.
"""

from pydantic import Field

from learnloop_api.wire.base import MOST, Name, Timestamp, WireModel

BUDGETS_KEY = "budgets.json"
BUDGETS_ROOM = 1_000_000
"""Bytes of that key at most: a ConfigMap holds 1 MiB."""
MOST_MEMORIES = 10_000_000


class MemoryBudget(WireModel):
    """PUT /api/v1/agents/{agent}/memory-budget. A limit that is left out is none; pinned memories stay above any."""

    memories: int | None = Field(default=None, ge=0, le=MOST_MEMORIES, description="of all types together")
    bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="what their content and text take in PostgreSQL, without index and vectors",
    )

    def within(self, limit: "MemoryBudget") -> "MemoryBudget":
        """The smaller of the two, limit by limit."""
        return MemoryBudget(memories=_smaller(self.memories, limit.memories), bytes=_smaller(self.bytes, limit.bytes))

    def sentence(self) -> str:
        """The limits in words, e.g. 1000 memories, 400 episodic ones."""
        parts = [f"{self.memories} memories"] if self.memories is not None else []
        return ", ".join(parts + ([f"{self.bytes} bytes"] if self.bytes is not None else []))


class AgentMemorySettings(MemoryBudget):
    """Memory settings of a LearningAgent: budget and group."""

    group: Name | None = Field(default=None, description="its agents may recall from one another")


class AgentBudgets(WireModel):
    """`budgets.json`: agents without an entry have no budget of their own and no group."""

    namespace: Name = Field(description="whose agents these are")
    agents: dict[Name, AgentMemorySettings] = Field(description="by name; at most as many as BUDGETS_ROOM bytes hold")


def budgets_config_map(memory_service: str) -> str:
    """Name of the ConfigMap that tells a MemoryService its agents' budgets."""
    return f"{memory_service}-budgets"


class MemoryUse(WireModel):
    """GET /api/v1/agents/{agent}/memory-budget: measured after every pass that forgets, about once a minute."""

    agent: Name
    own: MemoryBudget | None = Field(default=None, description="as it was put here; null: none was")
    budget: MemoryBudget = Field(
        description="what holds: of its own, its LearningAgent's and the service's, the smallest limits"
    )
    memories: int | None = Field(default=None, ge=0, description="null: not measured yet")
    bytes: int | None = Field(default=None, ge=0)
    pinned: int | None = Field(default=None, ge=0, description="of these memories, how many are pinned")
    pinned_above: list[str] = Field(
        default_factory=list, max_length=2, description="limits that pinned memories alone exceed, e.g. memories"
    )
    forgotten: int = Field(default=0, ge=0, description="by this budget, since it was first put")
    last_forgotten: int = Field(default=0, ge=0, description="in the newest pass that forgot any")
    last_forgotten_at: Timestamp | None = None


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
