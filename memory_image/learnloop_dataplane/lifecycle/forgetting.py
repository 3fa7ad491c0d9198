"""Forgetting: the least valuable memories above an agent's budget go, by value × freshness."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.audit.chain import note_memories
from learnloop_dataplane.lifecycle.retirement import retire
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.sliced_transactions import hold
from learnloop_dataplane.recall.memory_types import CODES, POLICIES

Floats = NDArray[np.float64]
REASONS_SHOWN = 50
BATCH = 500
"""Memories of one transaction."""
REST, LONGEST_REST_SECONDS = 4.0, 2.0
"""After each of them, as often as long as it took: the busier the database, the longer recalls are left alone."""
READ_AT_ONCE = 1000  # rows between two of which requests are answered
SECONDS = 60.0

SIZE = "pg_column_size(m.content) + pg_column_size(m.text)"
"""What the budget counts of a memory: neither is unpacked for it."""
# Two processes that forgot by the same count would forget twice as many: each looks, alone, whether the other did.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('forget/' || $1 || '/' || $2, 0))"
_HELD = f"""
SELECT m.id, m.memory_type, m.importance, m.pinned, {SIZE} AS size,
    coalesce(u.access_count, 0) AS used, coalesce(u.helped, 0) AS helped, coalesce(u.hurt, 0) AS hurt,
    extract(epoch FROM now() - greatest(m.created_at, u.last_accessed))::float8 AS idle_seconds
FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.state = 'active' AND m.ends_at > now()
"""
_SO_FAR = "SELECT count(*) FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND state = 'forgotten'"
_TEXTS = "SELECT id, left(text, 120) AS text FROM agent_memories WHERE namespace = $1 AND id = ANY($2::uuid[])"


@dataclass(frozen=True)
class MemoryWorths:
    """Columns float64 [n] of n memories; `pinned` is 1 or 0."""

    importance: Floats
    used: Floats
    helped: Floats
    hurt: Floats
    idle_days: Floats
    half_life_days: Floats
    pinned: NDArray[np.bool_] | Floats


def value(worth: MemoryWorths) -> Floats:
    """value × freshness of each memory, float64 [n], pinned ones infinite.

    Value: importance as its writer judged it, raised by use (each doubling counts the same) and moved by what the
    rewards say it did. Freshness halves every half-life since it was stored or last recalled, and never below a
    tenth: an old memory that earned its place outlives a new one that did not.
    """
    outcome = (worth.helped - worth.hurt) / (worth.helped + worth.hurt + 1.0)
    earned = worth.importance * (1.0 + 0.25 * np.log2(1.0 + worth.used)) + np.maximum(outcome, 0.0)
    earned *= 1.0 + np.minimum(outcome, 0.0) * 0.9
    freshness = 0.1 + 0.9 * np.exp2(-worth.idle_days / worth.half_life_days)
    return np.where(worth.pinned.astype(bool), np.inf, earned * freshness)


def surplus(values: Floats, budget: int) -> NDArray[np.intp]:
    """Indices of what has to go, the least valuable first; pinned memories stay even above the budget."""
    order = np.argsort(values, kind="stable")[: max(len(values) - budget, 0)]
    chosen: NDArray[np.intp] = order[np.isfinite(values[order])]
    return chosen


def above(values: Floats, sizes: Floats, kinds: NDArray[np.intp], budget: MemoryBudget) -> NDArray[np.intp]:
    """Indices of what has to go under all limits of a budget, the least valuable first; pinned memories stay.

    Args:
        values: of n memories, float64 [n], pinned ones infinite.
        sizes: bytes, float64 [n].
        kinds: which type each is of, by `kinds.CODES`, [n].
    """
    gone = np.zeros(len(values), dtype=bool)
    for kind, most in budget.per_type.items():
        of_kind = np.flatnonzero(kinds == CODES[kind])
        gone[of_kind[surplus(values[of_kind], most)]] = True
    if budget.memories is not None:
        left = np.flatnonzero(~gone)
        gone[left[surplus(values[left], budget.memories)]] = True
    if budget.bytes is not None and (excess := sizes[~gone].sum() - budget.bytes) > 0:
        left = np.flatnonzero(~gone & np.isfinite(values))
        order = left[np.argsort(values[left], kind="stable")]
        gone[order[: np.searchsorted(np.cumsum(sizes[order]), excess) + 1]] = True
    chosen = np.flatnonzero(gone)
    ranked: NDArray[np.intp] = chosen[np.argsort(values[chosen], kind="stable")]
    return ranked


@dataclass(frozen=True)
class _Surplus:
    """Memories above the budget, the least valuable first; `so_far` had been forgotten when this was read."""

    held: int
    ids: list[UUID]
    examples: list[dict[str, Any]]
    so_far: int


@dataclass(frozen=True)
class ForgottenMemories:
    """Result of forgetting: counts, and the first fifty memories with their value and text."""

    agent_id: str
    held: int
    budget: int | None
    forgotten: int
    dry_run: bool
    examples: list[dict[str, Any]]


async def forget(
    db: Database, namespace: str, agent: str, budget: MemoryBudget, *, dry_run: bool = False
) -> ForgottenMemories:
    """Brings one agent's memory down to its budget, batch by batch.

    Raises:
        Unavailable: what is above the budget goes the next time.
    """
    first = above_it = await _surplus(db, namespace, agent, budget)
    forgotten, start, so_far = 0, 0, first.so_far
    while not dry_run and start < len(above_it.ids):
        began = time.monotonic()
        gone = await _retire(db, namespace, agent, above_it.ids[start : start + BATCH], so_far)
        if gone is None:
            above_it = await _surplus(db, namespace, agent, budget)
            start, so_far = 0, above_it.so_far
            continue
        forgotten, start, so_far = forgotten + gone, start + BATCH, so_far + gone
        await _rest(min(REST * (time.monotonic() - began), LONGEST_REST_SECONDS))
    gone = len(first.ids) if dry_run else forgotten
    return ForgottenMemories(agent, first.held, budget.memories, gone, dry_run, first.examples)


async def _rest(seconds: float) -> None:
    """Without a connection: the pool is everybody's."""
    await asyncio.sleep(seconds)


async def _surplus(db: Database, namespace: str, agent: str, budget: MemoryBudget) -> _Surplus:
    async with db.tenant(namespace) as connection:
        await connection.execute(_ALONE, namespace, agent, timeout=SECONDS)
        so_far = await connection.fetchval(_SO_FAR, namespace, agent, timeout=SECONDS)
        ids, sizes, kinds, worth = await _held(connection, namespace, agent)
        values = value(worth)
        chosen = above(values, sizes, kinds, budget)
        shown = [ids[index] for index in chosen[:REASONS_SHOWN]]
        texts = {row["id"]: row["text"] for row in await connection.fetch(_TEXTS, namespace, shown)}
    examples = [
        {"id": ids[index], "value": round(float(values[index]), 6), "text": texts.get(ids[index], "")}
        for index in chosen[:REASONS_SHOWN]
    ]
    return _Surplus(len(ids), [ids[index] for index in chosen], examples, so_far)


async def _retire(db: Database, namespace: str, agent: str, batch: Sequence[UUID], so_far: int) -> int | None:
    """How many of them went; None where somebody else forgot meanwhile, so that less is above the budget by now."""
    async with db.tenant(namespace) as connection:
        await hold(connection, namespace, agent)
        await connection.execute(_ALONE, namespace, agent, timeout=SECONDS)
        if so_far != await connection.fetchval(_SO_FAR, namespace, agent, timeout=SECONDS):
            return None
        gone = await retire(connection, namespace, agent, batch, "forgotten")
        await note_memories(connection, namespace, "memory.forgotten", agent, gone)
    return len(gone)


async def _held(
    connection: Any, namespace: str, agent: str
) -> tuple[list[UUID], Floats, NDArray[np.intp], MemoryWorths]:
    """Ids, bytes, types and worth of an agent's memories; requests are answered between two pages of a large one."""
    ids: list[UUID] = []
    columns: list[Floats] = []
    cursor = await connection.cursor(_HELD, namespace, agent, timeout=SECONDS)
    while rows := await cursor.fetch(READ_AT_ONCE, timeout=SECONDS):
        ids += [row["id"] for row in rows]
        columns.append(np.array([_numbers(row) for row in rows], dtype=np.float64).T)
    sizes, kinds, *others = np.concatenate(columns, axis=1) if columns else np.zeros((9, 0))
    worth = MemoryWorths(**{item.name: column for item, column in zip(fields(MemoryWorths), others, strict=True)})
    return ids, sizes, kinds.astype(np.intp), worth


def _numbers(row: Any) -> tuple[float, ...]:
    """Size, type, and the columns of `MemoryWorths` in their order."""
    kind = row["memory_type"]
    return (
        row["size"],
        CODES[kind],
        row["importance"],
        row["used"],
        row["helped"],
        row["hurt"],
        max(row["idle_seconds"], 0.0) / 86_400.0,
        POLICIES[kind].half_life_days,
        row["pinned"],
    )
