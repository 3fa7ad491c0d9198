"""Retirement: takes memories out of recall, and brings them back. Nothing is deleted, and `as_of` still sees what was.

A poisoned page or a wrong import is known by its origin, not by its ids: all of an origin can be quarantined, released
or rolled back, with what was distilled from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal
from uuid import UUID

from learnloop_common.redaction.redactor import safe_origin
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy import redact_text

Retired = Literal["forgotten", "duplicate", "echo", "superseded", "quarantined", "rolled-back"]
Action = Literal["quarantine", "release", "rollback"]
_STATE: dict[Action, Retired] = {"quarantine": "quarantined", "rollback": "rolled-back"}
SECONDS = 300.0
"""For a statement about all memories of an origin."""

# First the wide row, whose lock the indexer respects; then the narrow one, which is there by then or never will be.
_RETIRE = """
UPDATE agent_memories m SET state = $3, retired_at = now(), ends_at = least(ends_at, now()), superseded_by = t.by
FROM unnest($4::uuid[], $5::uuid[]) AS t(id, by)
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.id = t.id AND m.state = 'active'
    AND NOT (m.pinned AND $3 = 'forgotten') RETURNING m.id
"""
# A memory that takes another one's place stays until the end of the transaction.
_LASTING = """
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) AND state = 'active'
ORDER BY id FOR KEY SHARE
"""
_REVIVE = """
UPDATE agent_memories SET state = 'active', retired_at = NULL, superseded_by = NULL,
    ends_at = coalesce(least(CASE WHEN NOT pinned THEN expires_at END, valid_to), 'infinity')
WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) AND state <> 'active' RETURNING id
"""
_CONDEMN = """
UPDATE agent_memories SET state = 'rolled-back'
WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) AND state = 'quarantined'
"""
_FOLLOW = """
UPDATE memory_index v SET visible_to = m.ends_at FROM agent_memories m
WHERE v.namespace = $1 AND v.agent_id = $2 AND v.memory_id = ANY($3::uuid[])
    AND m.namespace = v.namespace AND m.id = v.memory_id
"""
# A trailing * takes every origin that begins like this.
_FROM_IT = "CASE WHEN $4 THEN starts_with(origin, $3) ELSE origin = $3 END"
# What consolidation made out of the chosen ones goes with them: it names its sources, or, where there are more than it
# names, had every episode of its task.
_REACHED = f"""
WITH chosen AS MATERIALIZED (
    SELECT id, agent_id, state, memory_type, created_at, content->>'task' AS task FROM agent_memories
    WHERE namespace = $1 AND ($2::text IS NULL OR agent_id = $2) AND origin <> '' AND {_FROM_IT}
), made AS MATERIALIZED (
    SELECT id, agent_id, state, created_at, content->>'task' AS task, provenance->'from' AS sources,
        provenance->'episodes' > to_jsonb(jsonb_array_length(provenance->'from')) AS more
    FROM agent_memories WHERE namespace = $1 AND source = 'consolidation'
)
SELECT id, agent_id FROM (
    SELECT id, agent_id, state FROM chosen
    UNION SELECT m.id, m.agent_id, m.state FROM made m, jsonb_array_elements_text(m.sources) AS f(source)
        JOIN chosen c ON c.id = f.source::uuid WHERE c.agent_id = m.agent_id
    UNION SELECT m.id, m.agent_id, m.state FROM made m JOIN chosen c ON c.agent_id = m.agent_id AND c.task = m.task
        WHERE m.more AND c.memory_type = 'episodic' AND c.created_at <= m.created_at
) reached WHERE state = ANY($5::text[]) ORDER BY agent_id, id
"""
# What ended because a memory that goes now said the same, and came from somewhere else: that source vouches for it.
_VOUCHED = f"""
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND state = 'duplicate'
    AND superseded_by IN (SELECT unnest($5::uuid[])) AND origin <> '' AND NOT {_FROM_IT}
"""
_RECALLS = """
SELECT count(DISTINCT r.retrieval_id) FROM recall_log r CROSS JOIN LATERAL unnest(r.memory_ids) AS hit(id)
JOIN unnest($2::uuid[]) AS gone(id) ON gone.id = hit.id WHERE r.namespace = $1
"""


async def retire(
    connection: Any,
    namespace: str,
    agent: str,
    ids: Sequence[UUID],
    state: Retired,
    superseded_by: Sequence[UUID | None] | None = None,
) -> list[UUID]:
    """Ends the active ones of these, and returns them. Pinned ones are not forgotten.

    Args:
        superseded_by: the memory that took the place of each. Where that is active no more, both are left as they are.
    """
    if superseded_by is not None:
        rows = await connection.fetch(_LASTING, namespace, agent, list(superseded_by), timeout=SECONDS)
        lasting = {row["id"] for row in rows}
        pairs = [(one, by) for one, by in zip(ids, superseded_by, strict=True) if by is None or by in lasting]
        ids, superseded_by = [one for one, _ in pairs], [by for _, by in pairs]
    rows = await connection.fetch(
        _RETIRE, namespace, agent, state, list(ids), list(superseded_by or [None] * len(ids)), timeout=SECONDS
    )
    ended = [row["id"] for row in rows]
    await connection.execute(_FOLLOW, namespace, agent, ended, timeout=SECONDS)
    return ended


async def revive(connection: Any, namespace: str, agent: str, ids: Sequence[UUID]) -> None:
    """Makes these recallable again while they are valid."""
    rows = await connection.fetch(_REVIVE, namespace, agent, list(ids), timeout=SECONDS)
    back = [row["id"] for row in rows]
    await connection.execute(_FOLLOW, namespace, agent, back, timeout=SECONDS)


@dataclass(frozen=True)
class Blast:
    """Reach of an origin: memories by agent, and the number of recalls that returned at least one of them."""

    origin: str
    action: Action
    memories: int
    agents: dict[str, int]
    recalls: int
    dry_run: bool


async def act_on_origin(
    db: Database, namespace: str, origin: str, action: Action, *, agent: str | None, dry_run: bool
) -> Blast:
    """Quarantines an origin, releases it, or rolls it back, quarantined memories included.

    The origin is redacted as stored ones are, so one with an address finds its memories and is named nowhere.

    Raises:
        Unavailable: nothing was changed.
    """
    states = {"quarantine": ["active"], "release": ["quarantined"], "rollback": ["active", "quarantined"]}[action]
    prefix = origin.endswith("*")
    safe = safe_origin(origin.removesuffix("*"), redact_text)
    pattern = (safe, prefix)
    reached: dict[str, list[UUID]] = {}
    async with db.tenant(namespace) as connection:
        for row in await connection.fetch(_REACHED, namespace, agent, *pattern, states, timeout=SECONDS):
            reached.setdefault(row["agent_id"], []).append(row["id"])
        counts = {name: len(ids) for name, ids in reached.items()}
        everything = list(chain.from_iterable(reached.values()))
        recalls = await connection.fetchval(_RECALLS, namespace, everything, timeout=SECONDS)
        if not dry_run and reached:
            for name, ids in reached.items():
                if action == "release":
                    await revive(connection, namespace, name, ids)
                    continue
                await retire(connection, namespace, name, ids, _STATE[action])
                if action == "rollback":
                    await connection.execute(_CONDEMN, namespace, name, ids, timeout=SECONDS)
                vouched = await connection.fetch(_VOUCHED, namespace, name, *pattern, ids, timeout=SECONDS)
                await revive(connection, namespace, name, [row["id"] for row in vouched])
            named = safe + "*" * prefix
            await note(connection, namespace, f"memory.{action}", f"origin/{named}", {"memories": counts})
    return Blast(safe + "*" * prefix, action, sum(counts.values()), counts, recalls, dry_run)
