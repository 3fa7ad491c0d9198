"""Forgetting: agents' memory budgets, and which memories above them go: the least valuable, by value × freshness.

A budget is put by REST, read from a file that the operator writes and the kubelet keeps up to date, or set for all
agents; the smallest limit holds. Background work forgets what exceeds it; no store and no recall waits for that.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from learnloop_api.wire.memory_budget import BUDGETS_ROOM, AgentBudgets, AgentMemorySettings, MemoryBudget, MemoryUse
from learnloop_dataplane import errors, strict_json
from learnloop_dataplane.audit.chain import note, note_memories
from learnloop_dataplane.concurrency.background_loop import Work
from learnloop_dataplane.lifecycle.quarantine import retire
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres import database, memory_tables
from learnloop_dataplane.recall import memory_types, ranking, statements

log = logging.getLogger(__name__)
UNLIMITED = MemoryBudget()
REASONS_SHOWN = 50
SECONDS = 60.0

SIZE = "pg_column_size(m.content) + pg_column_size(m.text)"
"""The parts of a memory that the budget counts: neither is unpacked for it."""
# Two processes that forgot by the same count would forget twice as many.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('forget/' || $1 || '/' || $2, 0))"
_HALF_LIVES = " ".join(f"WHEN '{name}' THEN {policy.half_life_days}" for name, policy in memory_types.POLICIES.items())
# Value: importance as its writer judged it, raised by use (each doubling counts the same) and moved by what the rewards
# say it did. Freshness halves every half-life since it was stored or last recalled, and never below a tenth: an old
# memory that earned its place outlives a new one that did not. A standing instruction does not age, and what ends one
# goes last while there is an earlier one: the instruction would hold again. For the same reason a statement is worth no
# more than the later ones of the opposite sense, which end it.
_STATED = ", ".join(f"{statements.Kind[name]:d}" for name in ("PREFERENCE", "INSTRUCTION", "REPLACEMENT"))
_SURPLUS = f"""
WITH held AS (
    SELECT m.id, m.pinned, m.kind, m.created_at, s.*, {SIZE} AS size,
        (m.importance * (1 + 0.25 * ln(1 + coalesce(u.access_count, 0)) / ln(2)) + greatest(i.outcome, 0))
        * (1 + 0.9 * least(i.outcome, 0)) * (0.1 + 0.9 * power(0.5, least(i.half_lives, 100))) AS value
    FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
    CROSS JOIN LATERAL (SELECT coalesce((u.helped - u.hurt) / (u.helped + u.hurt + 1), 0) AS outcome,
        greatest(extract(epoch FROM now() - greatest(m.created_at, u.last_accessed))::float8 / 86400, 0)
        / CASE m.memory_type {_HALF_LIVES} END * (m.kind < {statements.Kind.INSTRUCTION:d})::int AS half_lives) i
    LEFT JOIN LATERAL (SELECT v.owner, v.spoken_at, a.* FROM memory_index v, LATERAL (
            SELECT bool_or(get_byte(v.about, i) & {ranking.DENIES} > 0) AS denies, array_agg(substr(v.about, i + 2, 3)
                ORDER BY i) FILTER (WHERE get_byte(v.about, i) & {ranking.SUBJECT} > 0) AS subject
            FROM generate_series(0, length(v.about) - 4, 4) AS i) a
        WHERE v.namespace = m.namespace AND v.agent_id = m.agent_id AND v.memory_id = m.id
            AND m.kind IN ({statements.Kind.PREFERENCE:d}, {statements.Kind.INSTRUCTION:d}) OFFSET 0) s ON true
    WHERE m.namespace = $1 AND m.agent_id = $2 AND m.state = 'active' AND m.ends_at > now()
), turned AS (
    SELECT *, min(created_at) FILTER (WHERE kind IN ({_STATED})) OVER () AS first,
        subject IS NOT NULL AND denies <> lag(denies) OVER same AS turns
    FROM held WINDOW same AS (PARTITION BY owner, subject ORDER BY spoken_at, id)
), ending AS (
    SELECT *, kind > {statements.Kind.INSTRUCTION:d} AND coalesce(created_at >= first, false) AS ends,
        count(*) FILTER (WHERE turns) OVER (PARTITION BY owner, subject ORDER BY spoken_at, id) AS turn
    FROM turned
), valued AS (
    SELECT id, pinned, size, ends, turn, least(value, min(value) OVER (PARTITION BY owner, subject ORDER BY turn
        GROUPS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)) AS value FROM ending
), ranked AS (
    SELECT *, row_number() OVER best AS place, sum(size) OVER best AS total
    FROM valued WINDOW best AS (ORDER BY pinned DESC, ends DESC, value DESC, turn DESC, id ROWS UNBOUNDED PRECEDING)
)
SELECT id, value FROM ranked WHERE NOT pinned AND (place > $3 OR total > $4) ORDER BY ends, value, turn, id
"""
_TEXTS = "SELECT id, left(text, 120) AS text FROM agent_memories WHERE namespace = $1 AND id = ANY($2::uuid[])"
_FIGURES = {"memories", "bytes", "pinned", "pinned_above", "forgotten", "last_forgotten", "last_forgotten_at"}
_HELD = f"""
SELECT m.agent_id, count(*) AS memories, coalesce(sum({SIZE}), 0)::bigint AS bytes,
    count(*) FILTER (WHERE m.pinned) AS pinned,
    coalesce(sum({SIZE}) FILTER (WHERE m.pinned), 0)::bigint AS pinned_bytes
FROM agent_memories m
WHERE m.namespace = $1 AND m.state = 'active' AND m.ends_at > now() AND ($2::text[] IS NULL OR m.agent_id = ANY($2))
GROUP BY m.agent_id
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
    db: database.Database, namespace: str, agent: str, budget: MemoryBudget, *, dry_run: bool = False
) -> ForgottenMemories:
    """Brings one agent's memory down to its budget: the least valuable go, and pinned ones stay even above it."""
    async with db.tenant(namespace) as connection:
        await connection.execute(_ALONE, namespace, agent, timeout=SECONDS)
        holding = (await held(connection, namespace, [agent])).get(agent) or Held()
        limits = budget.memories, budget.bytes
        surplus = await connection.fetch(_SURPLUS, namespace, agent, *limits, timeout=SECONDS)
        shown = {row["id"]: row["value"] for row in surplus[:REASONS_SHOWN]}
        texts = {row["id"]: row["text"] for row in await connection.fetch(_TEXTS, namespace, list(shown))}
        gone = [row["id"] for row in surplus]
        if not dry_run:
            gone = await retire(connection, namespace, agent, gone, "forgotten")
            await note_memories(connection, namespace, "memory.forgotten", agent, gone)
    examples = [{"id": one, "value": round(worth, 6), "text": texts.get(one, "")} for one, worth in shown.items()]
    return ForgottenMemories(agent, holding.memories, budget.memories, len(gone), dry_run, examples)


class BudgetFile:
    """Budgets that LearningAgents set. A missing or invalid file is logged and counted; the last valid one holds.

    Args:
        path: None where there are none.
    """

    def __init__(self, path: Path | None, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self._reader = strict_json.StrictReader(AgentBudgets)
        self._budgets: AgentBudgets | None = None
        self._refusal = ""

    def of(self, namespace: str) -> Mapping[str, AgentMemorySettings]:
        """Budgets by agent."""
        return self._budgets.agents if self._budgets is not None and self._budgets.namespace == namespace else {}

    def groups(self, namespace: str) -> Mapping[str, str]:
        """Memory groups by agent."""
        return {agent: each.group for agent, each in self.of(namespace).items() if each.group is not None}

    async def look(self) -> None:
        """Reads the file; never raises."""
        if self._path is None:
            return
        refusal = ""
        try:
            content = await asyncio.to_thread(self._path.read_bytes)
            if len(content) > BUDGETS_ROOM:
                raise ValueError(f"more than {BUDGETS_ROOM} bytes")
            self._budgets = self._reader.read(content)
        except (OSError, ValueError) as error:
            self._metrics.budgets_refused.inc()
            refusal = str(error)[:500]
            if refusal != self._refusal:
                log.error("invalid budgets of agents in %s, the last valid ones hold: %s", self._path, refusal)
        self._refusal = refusal


@dataclass(frozen=True)
class Held:
    """Memories and bytes of one agent, and the pinned ones among them."""

    memories: int = 0
    bytes: int = 0
    pinned: int = 0
    pinned_bytes: int = 0

    def exceeds(self, budget: MemoryBudget) -> bool:
        """Whether anything is above a limit."""
        return bool(_above(budget, self.memories, self.bytes))

    def pinned_above(self, budget: MemoryBudget) -> list[str]:
        """The limits that pinned memories alone exceed."""
        return _above(budget, self.pinned, self.pinned_bytes)


def _above(budget: MemoryBudget, memories: int, size: int) -> list[str]:
    pairs = (("memories", memories, budget.memories), ("bytes", size, budget.bytes))
    return [name for name, held, limit in pairs if limit is not None and held > limit]


class Budgets:
    """Budgets of agents by REST, and the passes that hold agents to them.

    Args:
        limit: of every agent, whatever its own budget.
        file: read before each pass.
    """

    def __init__(self, db: database.Database, metrics: Metrics, limit: MemoryBudget, file: BudgetFile) -> None:
        self._db = db
        self._metrics = metrics
        self._limit = limit
        self._file = file
        self.work: Work | None = None
        """The passes over namespaces, once they have begun."""

    def changed(self, namespace: str) -> None:
        """Asks for a pass: a budget is new, or agents hold much more than before."""
        if self.work is not None:
            self.work.changed(namespace)

    async def put(self, namespace: str, agent: str, budget: MemoryBudget) -> bool:
        """Sets an agent's own budget; returns whether that is new. The same again starts no pass."""
        limits = budget.model_dump(mode="json", exclude_none=True)
        async with self._db.session(namespace) as session:
            row = await session.locked(memory_tables.MemoryBudgetRow(namespace=namespace, agent_id=agent))
            if row.own == limits:
                return False
            row.own = limits
            await note(session.raw, namespace, "memory.budget.set", f"agent/{agent}", limits)
        self.changed(namespace)
        return True

    async def use(self, namespace: str, agent: str) -> MemoryUse:
        """An agent's budget, and what it held when last measured. Raises ApiError: 404, it has no budget."""
        async with self._db.session(namespace) as session:
            row = await session.get(memory_tables.MemoryBudgetRow, (namespace, agent))
        own = MemoryBudget.model_validate(row.own) if row is not None and row.own is not None else None
        budget = (own or UNLIMITED).within(self._others(namespace, agent))
        if own is None and budget == UNLIMITED:
            message = "this agent has no memory budget; put one at /api/v1/agents/{agent}/memory-budget"
            raise errors.ApiError(404, message, field="agent", value=agent)
        figures = row.model_dump(include=_FIGURES) if row is not None else {}
        return MemoryUse(agent=agent, own=own, budget=budget, **figures)

    async def drop(self, namespace: str, agent: str) -> None:
        """Deletes the agent's own budget; forgotten memories stay forgotten."""
        async with self._db.session(namespace) as session:
            await drop_budget(session, namespace, agent)

    async def keep(self, namespace: str) -> int:
        """One pass over a namespace; returns how many memories were forgotten."""
        await self._file.look()
        everyone = self._limit != UNLIMITED
        budgets = (
            select(memory_tables.MemoryBudgetRow)
            .filter_by(namespace=namespace)
            .where(col(memory_tables.MemoryBudgetRow.own).is_not(None))
        )
        async with self._db.session(namespace) as session:
            own = {row.agent_id: MemoryBudget.model_validate(row.own) for row in await session.exec(budgets)}
            named = {*own, *self._file.of(namespace)}
            holding = await held(session.raw, namespace, None if everyone else named) if named or everyone else {}
        gone = 0
        for agent in sorted({*holding, *named}):
            budget = own.get(agent, UNLIMITED).within(self._others(namespace, agent))
            gone += await self._agent(namespace, agent, budget, holding.get(agent) or Held())
        return gone

    def _others(self, namespace: str, agent: str) -> MemoryBudget:
        """The limits that do not come by REST."""
        return self._file.of(namespace).get(agent, UNLIMITED).within(self._limit)

    async def _agent(self, namespace: str, agent: str, budget: MemoryBudget, holding: Held) -> int:
        gone = 0
        if holding.exceeds(budget):
            gone = (await forget(self._db, namespace, agent, budget)).forgotten
        async with self._db.tenant(namespace) as connection:
            if gone:
                holding = (await held(connection, namespace, [agent])).get(agent) or Held()
            figures = (holding.memories, holding.bytes, holding.pinned, holding.pinned_above(budget))
            await connection.execute(_MEASURED, namespace, agent, *figures, gone)
        self._metrics.budget(namespace, agent, holding.memories, holding.bytes, gone)
        return gone


async def drop_budget(session: database.Session, namespace: str, agent: str) -> None:
    """Deletes the agent's own budget, and notes it if there was one."""
    if row := await session.get(memory_tables.MemoryBudgetRow, (namespace, agent), with_for_update=True):
        await session.delete(row)
        if row.own is not None:
            await note(session.raw, namespace, "memory.budget.dropped", f"agent/{agent}")


async def held(connection: Any, namespace: str, agents: Collection[str] | None) -> dict[str, Held]:
    """Figures of these agents; None: of all that hold anything."""
    rows = await connection.fetch(_HELD, namespace, None if agents is None else list(agents), timeout=SECONDS)
    return {agent: Held(*figures) for agent, *figures in rows}
