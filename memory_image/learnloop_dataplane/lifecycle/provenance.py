"""Provenance at work: everything from one origin out of recall at once, and back, or out for good.

A poisoned page or a wrong import is known by where it came from, not by its ids. What was distilled from it goes too.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal
from uuid import UUID

from learnloop_common.redaction.fields import safe_origin
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.lifecycle.retirement import Retired, condemn, retire, revive
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.sliced_transactions import SECONDS, SLICE, Progress, alone, pages, whole
from learnloop_dataplane.privacy.redaction import redact_text

Action = Literal["quarantine", "release", "rollback"]
_STATE: dict[Action, Retired] = {"quarantine": "quarantined", "rollback": "rolled-back"}

# A trailing * takes every origin that begins like this. $3: as it is stored, and as it was stored before origins were
# redacted.
_FROM_IT = "CASE WHEN $4 THEN origin ^@ ANY($3::text[]) ELSE origin = ANY($3::text[]) END"
# What consolidation made out of the chosen ones follows, in as many steps as it takes. One that had more sources than
# it names had every episode of its task. A memory is found in `made` by its id or, an episode, by its task: one join by
# equality, where a condition with OR would compare all that was reached with all that was distilled.
_REACHED = f"""
WITH RECURSIVE made AS MATERIALIZED (
    SELECT m.agent_id, 'of ' || f.named AS key, m.id, m.state, m.memory_type, m.created_at, m.content->>'task' AS task
    FROM agent_memories m CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(m.provenance->'from') WHEN 'array' THEN m.provenance->'from' ELSE '[]' END) AS f(named)
    WHERE m.namespace = $1 AND m.source = 'consolidation'
    UNION ALL
    SELECT m.agent_id, 'all ' || (m.content->>'task'), m.id, m.state, m.memory_type, m.created_at, m.content->>'task'
    FROM agent_memories m
    WHERE m.namespace = $1 AND m.source = 'consolidation' AND CASE jsonb_typeof(m.provenance->'from')
        WHEN 'array' THEN m.provenance->'episodes' > to_jsonb(jsonb_array_length(m.provenance->'from')) END
), reached AS (
    SELECT id, agent_id, state, memory_type, created_at, content->>'task' AS task FROM agent_memories
    WHERE namespace = $1 AND ($2::text IS NULL OR agent_id = $2) AND origin <> '' AND {_FROM_IT}
    UNION
    SELECT m.id, m.agent_id, m.state, m.memory_type, m.created_at, m.task
    FROM reached r CROSS JOIN LATERAL unnest(ARRAY['of ' || r.id::text,
        CASE WHEN r.memory_type = 'episodic' THEN 'all ' || r.task END]) AS k(key)
    JOIN made m ON m.agent_id = r.agent_id AND m.key = k.key
    WHERE starts_with(k.key, 'of ') OR r.created_at <= m.created_at
)
SELECT id, agent_id FROM reached WHERE state = ANY($5::text[]) ORDER BY agent_id, id
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


@dataclass(frozen=True)
class Blast:
    """How far an origin reached: memories by agent, and how many recalls showed at least one of them."""

    origin: str
    action: Action
    memories: int
    agents: dict[str, int]
    recalls: int
    dry_run: bool


async def act(
    db: Database, namespace: str, origin: str, action: Action, progress: Progress, *, agent: str | None, dry_run: bool
) -> Blast:
    """Quarantines an origin, releases it again, or rolls it back. A rollback takes what is quarantined with it.

    The origin is redacted as stored ones are, so one with an address finds its memories and is named nowhere.

    Raises:
        ApiError: 503, it takes too long, and nothing was changed.
        Unavailable: nothing was changed.
    """
    states = {"quarantine": ["active"], "release": ["quarantined"], "rollback": ["active", "quarantined"]}[action]
    prefix = origin.endswith("*")
    safe = safe_origin(origin.removesuffix("*"), redact_text)
    pattern = ([safe, origin.removesuffix("*")], prefix)
    named = safe + "*" * prefix
    reached: dict[str, list[UUID]] = {}
    async with whole(db, namespace) as connection:
        async for rows in pages(connection, _REACHED, namespace, agent, *pattern, states):
            for row in rows:
                reached.setdefault(row["agent_id"], []).append(row["id"])
        counts = {name: len(ids) for name, ids in reached.items()}
        progress.of = sum(counts.values())
        everything = list(chain.from_iterable(reached.values()))
        recalls = await connection.fetchval(_RECALLS, namespace, everything, timeout=SECONDS)
        if not dry_run and reached:
            for name, ids in reached.items():
                await alone(connection, namespace, name)
                await _apply(connection, namespace, name, ids, action, progress)
                if action != "release":
                    async for rows in pages(connection, _VOUCHED, namespace, name, *pattern, ids):
                        await revive(connection, namespace, name, [row["id"] for row in rows])
            await note(connection, namespace, f"memory.{action}", f"origin/{named}", {"memories": counts})
    return Blast(named, action, sum(counts.values()), counts, recalls, dry_run)


async def _apply(
    connection: Any, namespace: str, agent: str, ids: list[UUID], action: Action, progress: Progress
) -> None:
    for start in range(0, len(ids), SLICE):
        some = ids[start : start + SLICE]
        if action == "release":
            await revive(connection, namespace, agent, some)
        else:
            await retire(connection, namespace, agent, some, _STATE[action])
        if action == "rollback":
            await condemn(connection, namespace, agent, some)
        progress.done += len(some)
