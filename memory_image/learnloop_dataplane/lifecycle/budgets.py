"""What each agent may keep: put, rolled back, read; and the figures of what it keeps."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from learnloop_api.wire.memory import MemoryBudget, MemoryUse
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.lifecycle.forgetting import SECONDS, SIZE
from learnloop_dataplane.postgres.database import Database

_PUT = """
INSERT INTO memory_budgets AS b (namespace, agent_id, own) VALUES ($1, $2, $3)
ON CONFLICT (namespace, agent_id) DO UPDATE SET own = excluded.own WHERE b.own IS DISTINCT FROM excluded.own
"""
_DROP = "UPDATE memory_budgets SET own = NULL WHERE namespace = $1 AND agent_id = $2 AND own IS NOT NULL"
_UNUSED = "DELETE FROM memory_budgets WHERE namespace = $1 AND agent_id = $2 AND own IS NULL"
_FIGURES = ("memories", "bytes", "pinned", "pinned_above", "forgotten", "last_forgotten", "last_forgotten_at")
_GET = "SELECT * FROM memory_budgets WHERE namespace = $1 AND agent_id = $2"
_OWN = "SELECT agent_id, own FROM memory_budgets WHERE namespace = $1 AND own IS NOT NULL"
_HELD = f"""
SELECT m.agent_id, m.memory_type, count(*) AS memories, coalesce(sum({SIZE}), 0)::bigint AS bytes,
    count(*) FILTER (WHERE m.pinned) AS pinned,
    coalesce(sum({SIZE}) FILTER (WHERE m.pinned), 0)::bigint AS pinned_bytes
FROM agent_memories m
WHERE m.namespace = $1 AND m.state = 'active' AND m.ends_at > now() AND ($2::text[] IS NULL OR m.agent_id = ANY($2))
GROUP BY m.agent_id, m.memory_type
"""
# Nothing is written when nothing is new: a quiet agent costs no transaction log.
_MEASURED = """
INSERT INTO memory_budgets AS b (namespace, agent_id, memories, bytes, pinned, pinned_above, forgotten, last_forgotten,
    last_forgotten_at)
VALUES ($1, $2, $3, $4, $5, $6, $7::bigint, $7::bigint, CASE WHEN $7::bigint > 0 THEN now() END)
ON CONFLICT (namespace, agent_id) DO UPDATE SET memories = excluded.memories, bytes = excluded.bytes,
    pinned = excluded.pinned, pinned_above = excluded.pinned_above, forgotten = b.forgotten + excluded.forgotten,
    last_forgotten = CASE WHEN excluded.forgotten > 0 THEN excluded.forgotten ELSE b.last_forgotten END,
    last_forgotten_at = coalesce(excluded.last_forgotten_at, b.last_forgotten_at)
WHERE (b.memories, b.bytes, b.pinned, b.pinned_above) IS DISTINCT FROM
    (excluded.memories, excluded.bytes, excluded.pinned, excluded.pinned_above) OR excluded.forgotten > 0
"""


@dataclass
class Held:
    """What one agent keeps: memories and bytes, of these pinned, and both by type."""

    memories: int = 0
    bytes: int = 0
    pinned: int = 0
    pinned_bytes: int = 0
    per_type: dict[str, int] = field(default_factory=dict)
    pinned_per_type: dict[str, int] = field(default_factory=dict)

    def exceeds(self, budget: MemoryBudget) -> bool:
        """Is anything above a limit?"""
        return bool(_above(budget, self.memories, self.bytes, self.per_type))

    def pinned_above(self, budget: MemoryBudget) -> list[str]:
        """The limits that pinned memories alone exceed."""
        return _above(budget, self.pinned, self.pinned_bytes, self.pinned_per_type)


def _above(budget: MemoryBudget, memories: int, size: int, per_type: dict[str, int]) -> list[str]:
    found = []
    if budget.memories is not None and memories > budget.memories:
        found.append("memories")
    if budget.bytes is not None and size > budget.bytes:
        found.append("bytes")
    return found + [f"per_type.{kind}" for kind, most in budget.per_type.items() if per_type.get(kind, 0) > most]


async def put(db: Database, namespace: str, agent: str, budget: MemoryBudget) -> bool:
    """From now on the agent keeps no more than this; returns whether that is new.

    Raises:
        Unavailable: nothing was changed.
    """
    said = budget.model_dump(mode="json", exclude_none=True)
    async with db.tenant(namespace) as connection:
        new: bool = await connection.execute(_PUT, namespace, agent, orjson.dumps(said).decode()) != "INSERT 0 0"
        if new:
            await note(connection, namespace, "memory.budget.set", f"agent/{agent}", said)
    return new


async def drop(connection: Any, namespace: str, agent: str) -> None:
    """Takes the agent's own budget back; what was forgotten stays forgotten."""
    if await connection.execute(_DROP, namespace, agent) != "UPDATE 0":
        await note(connection, namespace, "memory.budget.dropped", f"agent/{agent}")
    await connection.execute(_UNUSED, namespace, agent)


async def use(db: Database, namespace: str, agent: str, limit: MemoryBudget) -> MemoryUse:
    """What the agent may keep, and what it kept when that was last measured.

    Raises:
        ApiError: 404, it has no budget.
    """
    async with db.tenant(namespace) as connection:
        row = await connection.fetchrow(_GET, namespace, agent)
    own = MemoryBudget.model_validate_json(row["own"]) if row is not None and row["own"] is not None else None
    if own is None and limit == MemoryBudget():
        raise ApiError(
            404,
            "this agent has no memory budget; put one at /api/v1/agents/{agent}/memory-budget",
            field="agent",
            value=agent,
        )
    figures = {name: value for name, value in row.items() if name in _FIGURES} if row is not None else {}
    return MemoryUse(agent=agent, own=own, budget=own.within(limit) if own else limit, **figures)


async def budgets(connection: Any, namespace: str) -> dict[str, MemoryBudget]:
    """Every budget of its own that an agent of the namespace has."""
    rows = await connection.fetch(_OWN, namespace)
    return {row["agent_id"]: MemoryBudget.model_validate_json(row["own"]) for row in rows}


async def held(connection: Any, namespace: str, agents: Collection[str] | None) -> dict[str, Held]:
    """What these agents keep, None: all that keep anything."""
    wanted = None if agents is None else list(agents)
    return _summed(await connection.fetch(_HELD, namespace, wanted, timeout=SECONDS))


async def measured(
    connection: Any, namespace: str, agent: str, kept: Held, budget: MemoryBudget, forgotten: int
) -> None:
    """Notes what the agent keeps after `forgotten` memories went."""
    figures = (kept.memories, kept.bytes, kept.pinned, kept.pinned_above(budget))
    await connection.execute(_MEASURED, namespace, agent, *figures, forgotten)


def _summed(rows: Sequence[Any]) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for row in rows:
        kept = found.setdefault(row["agent_id"], Held())
        kept.memories += row["memories"]
        kept.bytes += row["bytes"]
        kept.pinned += row["pinned"]
        kept.pinned_bytes += row["pinned_bytes"]
        kept.per_type[row["memory_type"]] = row["memories"]
        kept.pinned_per_type[row["memory_type"]] = row["pinned"]
    return found
