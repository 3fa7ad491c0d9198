"""How much one agent may remember."""

import re
from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.cel_rules import Rule, explained
from learnloop_api.wire.memory import MOST_MEMORIES, MemoryBudget

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_TYPES = ("episodic", "semantic", "procedural", "working")


class MemoryLimit(Resource):
    """Limits that agents and services have in common."""

    memories: int | None = Field(default=None, ge=1, le=MOST_MEMORIES, description="Memories of all types together.")
    size: (
        Annotated[
            str,
            Field(
                pattern=r"^[1-9][0-9]{0,5}(Ki|Mi|Gi)$",
                max_length=8,
                json_schema_extra=dict(explained("must be a whole number of Ki, Mi or Gi, e.g. 64Mi")),
            ),
        ]
        | None
    ) = Field(default=None, description="What content and text take in PostgreSQL, without index and vectors.")

    @property
    def bytes(self) -> int | None:
        """`size` as a number; None: no limit, or one this version cannot read."""
        match = re.fullmatch(r"([0-9]+)(Ki|Mi|Gi)", self.size or "")
        return int(match[1]) * _UNITS[match[2]] if match else None


class ServiceMemoryLimit(MemoryLimit):
    """The limit of a MemoryService."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.memories) || has(self.size)", "set memories or size, or leave agentBudget out"),
    )


Limit = Annotated[int, Field(ge=0, le=MOST_MEMORIES)]


class PerType(Resource):
    """Limits of single types, beside those of all together."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " || ".join(f"has(self.{name})" for name in _TYPES),
            "name a type, episodic, semantic, procedural or working, or leave perType out",
        ),
    )

    episodic: Limit | None = Field(default=None, description="What happened.")
    semantic: Limit | None = Field(default=None, description="What is true.")
    procedural: Limit | None = Field(default=None, description="How something is done.")
    working: Limit | None = Field(default=None, description="What is going on now.")


class AgentMemoryBudget(MemoryLimit):
    """What one agent keeps within: above, the least valuable memories that are not pinned are forgotten."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.memories) || has(self.size) || has(self.perType)",
            "set memories, size or perType, or leave budget out",
        ),
        Rule(
            "!has(self.memories) || !has(self.perType) || ("
            + " && ".join(f"(!has(self.perType.{name}) || self.perType.{name} <= self.memories)" for name in _TYPES)
            + ")",
            "one type may not have more than memories: lower it, or raise memories",
            ".perType",
        ),
    )

    per_type: PerType | None = Field(default=None, description="Memories of single types.")

    def told(self) -> MemoryBudget:
        """As whoever keeps it takes it."""
        types = self.per_type.model_dump(exclude_none=True) if self.per_type else {}
        return MemoryBudget(memories=self.memories, bytes=self.bytes, per_type=types)
