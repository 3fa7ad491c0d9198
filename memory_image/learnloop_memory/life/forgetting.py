"""Forgetting: what an agent's memory is worth, and which of it goes when there is more than the budget.

value × freshness. On a trace where half of 1,000 memories had to go, forgetting by value and freshness kept 96 % of
what an oracle would have kept, by age alone 52 % (anchors).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from learnloop_memory.audit.journal import note_memories
from learnloop_memory.life.states import retire
from learnloop_memory.memory.kinds import POLICIES
from learnloop_memory.store.database import Database

Floats = NDArray[np.float64]
REASONS_SHOWN = 50

_HELD = """
SELECT m.id, m.memory_type, m.importance, m.pinned, left(m.text, 120) AS text,
    coalesce(u.access_count, 0) AS used, coalesce(u.helped, 0) AS helped, coalesce(u.hurt, 0) AS hurt,
    extract(epoch FROM now() - greatest(m.created_at, u.last_accessed))::float8 AS idle_seconds
FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.state = 'active' AND m.ends_at > now()
"""
_AGENTS = """
SELECT agent_id FROM agent_memories WHERE namespace = $1 AND state = 'active' AND ends_at > now()
GROUP BY agent_id HAVING count(*) > $2
"""


@dataclass(frozen=True)
class Worth:
    """What is known of n memories, as columns float64 [n]; `pinned` bool [n]."""

    importance: Floats
    used: Floats
    helped: Floats
    hurt: Floats
    idle_days: Floats
    half_life_days: Floats
    pinned: NDArray[np.bool_]


def value(worth: Worth) -> Floats:
    """value × freshness of each memory, float64 [n], pinned ones infinite.

    Value: importance as its writer judged it, raised by use (each doubling counts the same) and moved by what the
    rewards say it did. Freshness halves every half-life since it was stored or last recalled, and never below a
    tenth: an old memory that earned its place outlives a new one that did not.
    """
    outcome = (worth.helped - worth.hurt) / (worth.helped + worth.hurt + 1.0)
    earned = worth.importance * (1.0 + 0.25 * np.log2(1.0 + worth.used)) + np.maximum(outcome, 0.0)
    earned *= 1.0 + np.minimum(outcome, 0.0) * 0.9
    freshness = 0.1 + 0.9 * np.exp2(-worth.idle_days / worth.half_life_days)
    return np.where(worth.pinned, np.inf, earned * freshness)


def surplus(values: Floats, budget: int) -> NDArray[np.intp]:
    """Indices of what has to go, the least valuable first; pinned memories stay even above the budget."""
    order = np.argsort(values, kind="stable")[: max(len(values) - budget, 0)]
    chosen: NDArray[np.intp] = order[np.isfinite(values[order])]
    return chosen


@dataclass(frozen=True)
class Forgotten:
    """What went, or would go: how many of how many, and the first fifty with their value and text."""

    agent_id: str
    held: int
    budget: int
    forgotten: int
    dry_run: bool
    examples: list[dict[str, Any]]


async def forget(db: Database, namespace: str, agent: str, budget: int, *, dry_run: bool) -> Forgotten:
    """Brings one agent's memory down to `budget` memories.

    Raises:
        Unavailable: nothing was forgotten.
    """
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_HELD, namespace, agent)
        values = value(_worth(rows))
        chosen = surplus(values, budget)
        ids: Sequence[UUID] = [rows[index]["id"] for index in chosen]
        if not dry_run:
            ids = await retire(connection, namespace, agent, ids, "forgotten")
            await note_memories(connection, namespace, "memory.forgotten", agent, ids)
    examples = [
        {"id": rows[i]["id"], "value": round(float(values[i]), 6), "text": rows[i]["text"]}
        for i in chosen[:REASONS_SHOWN]
    ]
    return Forgotten(agent, len(rows), budget, len(ids), dry_run, examples)


async def forget_surplus(db: Database, namespace: str, budget: int) -> int:
    """Brings every agent of a namespace down to the budget; returns how many memories went.

    Raises:
        Unavailable: the rest goes the next time.
    """
    async with db.tenant(namespace) as connection:
        agents = [row["agent_id"] for row in await connection.fetch(_AGENTS, namespace, budget)]
    return sum([(await forget(db, namespace, agent, budget, dry_run=False)).forgotten for agent in agents])


def _worth(rows: Sequence[Any]) -> Worth:
    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=np.float64)

    return Worth(
        importance=column("importance"),
        used=column("used"),
        helped=column("helped"),
        hurt=column("hurt"),
        idle_days=np.maximum(column("idle_seconds"), 0.0) / 86_400.0,
        half_life_days=np.array([POLICIES[row["memory_type"]].half_life_days for row in rows], dtype=np.float64),
        pinned=np.array([row["pinned"] for row in rows], dtype=np.bool_),
    )
