"""Provenance at work: everything from one origin out of recall at once, and back, or out for good.

A poisoned page or a wrong import is known by where it came from, not by its ids. What was distilled from it goes too.
"""

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from learnloop_api.redaction_fields import safe_origin
from learnloop_memory.audit.journal import note
from learnloop_memory.experience.redact import redact_text
from learnloop_memory.life.states import Retired, condemn, retire, revive
from learnloop_memory.store.database import Database

Action = Literal["quarantine", "release", "rollback"]
_STATE: dict[Action, Retired] = {"quarantine": "quarantined", "rollback": "rolled-back"}

# A trailing * takes every origin that begins like this. $3: as it is stored, and as it was stored before origins were
# redacted.
_FROM_IT = "CASE WHEN $4 THEN origin ^@ ANY($3::text[]) ELSE origin = ANY($3::text[]) END"
# What consolidation made out of the chosen ones follows, in as many steps as it takes. One that had more sources than
# it names had every episode of its task.
_REACHED = f"""
WITH RECURSIVE reached AS (
    SELECT id, agent_id, state, memory_type, created_at, content->>'task' AS task FROM agent_memories
    WHERE namespace = $1 AND ($2::text IS NULL OR agent_id = $2) AND origin <> '' AND {_FROM_IT}
    UNION
    SELECT m.id, m.agent_id, m.state, m.memory_type, m.created_at, m.content->>'task'
    FROM agent_memories m JOIN reached r ON m.agent_id = r.agent_id
    WHERE m.namespace = $1 AND m.source = 'consolidation' AND (m.provenance->'from' ? r.id::text
        OR (r.memory_type = 'episodic' AND r.task = m.content->>'task' AND r.created_at <= m.created_at
            AND CASE jsonb_typeof(m.provenance->'from') WHEN 'array'
                THEN m.provenance->'episodes' > to_jsonb(jsonb_array_length(m.provenance->'from')) END))
)
SELECT id, agent_id, state FROM reached WHERE state = ANY($5::text[]) ORDER BY agent_id, id
"""
# What ended because a memory that goes now said the same, and came from somewhere else: that source vouches for it.
_VOUCHED = f"""
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND state = 'duplicate'
    AND superseded_by = ANY($5::uuid[]) AND origin <> '' AND NOT {_FROM_IT}
"""
_RECALLS = "SELECT count(*) FROM recall_log WHERE namespace = $1 AND memory_ids[1:shown] && $2::uuid[]"


@dataclass(frozen=True)
class Blast:
    """How far an origin reached: memories by agent, and how many recalls showed at least one of them."""

    origin: str
    action: Action
    memories: int
    agents: dict[str, int]
    recalls: int
    dry_run: bool


async def act(db: Database, namespace: str, origin: str, action: Action, *, agent: str | None, dry_run: bool) -> Blast:
    """Quarantines an origin, releases it again, or rolls it back. A rollback takes what is quarantined with it.

    The origin is redacted as stored ones are, so one with an address finds its memories and is named nowhere.

    Raises:
        Unavailable: nothing was changed.
    """
    states = {"quarantine": ["active"], "release": ["quarantined"], "rollback": ["active", "quarantined"]}[action]
    prefix = origin.endswith("*")
    safe = safe_origin(origin.removesuffix("*"), redact_text)
    pattern = ([safe, origin.removesuffix("*")], prefix)
    named = safe + "*" * prefix
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_REACHED, namespace, agent, *pattern, states)
        reached: dict[str, list[UUID]] = {}
        for row in rows:
            reached.setdefault(row["agent_id"], []).append(row["id"])
        recalls = await connection.fetchval(_RECALLS, namespace, [row["id"] for row in rows])
        if not dry_run:
            for name, ids in reached.items():
                await _apply(connection, namespace, name, ids, action)
                if action != "release":
                    vouched = [row["id"] for row in await connection.fetch(_VOUCHED, namespace, name, *pattern, ids)]
                    await revive(connection, namespace, name, vouched)
            if rows:
                counts = {name: len(ids) for name, ids in reached.items()}
                await note(connection, namespace, f"memory.{action}", f"origin/{named}", {"memories": counts})
    agents = {name: len(ids) for name, ids in reached.items()}
    return Blast(named, action, len(rows), agents, recalls, dry_run)


async def _apply(connection: Any, namespace: str, agent: str, ids: list[UUID], action: Action) -> None:
    if action == "release":
        await revive(connection, namespace, agent, ids)
        return
    await retire(connection, namespace, agent, ids, _STATE[action])
    if action == "rollback":
        await condemn(connection, namespace, agent, ids)
