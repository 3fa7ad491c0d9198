"""Taking memories out of recall and bringing them back. Nothing is deleted here: `as_of` still sees what was."""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from learnloop_dataplane.audit.chain import note_memories
from learnloop_dataplane.errors import ApiError

Retired = Literal["forgotten", "duplicate", "echo", "superseded", "quarantined", "rolled-back", "replaced"]

# First the wide row, whose lock the indexer respects; then the narrow one, which is there by then or never will be.
_RETIRE = """
UPDATE agent_memories m SET state = $3, retired_at = now(), ends_at = least(ends_at, now()), superseded_by = t.by
FROM unnest($4::uuid[], $5::uuid[]) AS t(id, by)
WHERE m.namespace = $1 AND m.agent_id = $2 AND m.id = t.id AND m.state = 'active'
    AND NOT (m.pinned AND $3 = 'forgotten') RETURNING m.id
"""
# When it was away is written down before it is wiped.
_REVIVE = """
WITH away AS (
    SELECT id, retired_at FROM agent_memories
    WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) AND state <> 'active' FOR UPDATE
), noted AS (
    INSERT INTO memory_absences (namespace, memory_id, since, until)
    SELECT $1, id, retired_at, now() FROM away WHERE retired_at < now()
    ON CONFLICT (namespace, memory_id, since) DO UPDATE SET until = greatest(memory_absences.until, excluded.until)
)
UPDATE agent_memories m SET state = 'active', retired_at = NULL, superseded_by = NULL,
    ends_at = coalesce(least(CASE WHEN NOT pinned THEN expires_at END, valid_to), 'infinity')
FROM away WHERE m.namespace = $1 AND m.agent_id = $2 AND m.id = away.id RETURNING m.id
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
# One that outlived its time while it was pinned ends when it is let go: `as_of` still finds it before that.
_PIN = """
UPDATE agent_memories m SET pinned = $3, ends_at = CASE WHEN $3 OR m.pinned
    THEN coalesce(least(CASE WHEN NOT $3 THEN greatest(expires_at, now()) END, valid_to), 'infinity') ELSE ends_at END
FROM (SELECT pinned FROM agent_memories WHERE namespace = $1 AND id = $2 FOR UPDATE) AS before
WHERE m.namespace = $1 AND m.id = $2 AND m.state = 'active' AND m.ends_at > now()
RETURNING m.agent_id, before.pinned <> $3 AS changed
"""


async def retire(
    connection: Any,
    namespace: str,
    agent: str,
    ids: Sequence[UUID],
    state: Retired,
    superseded_by: Sequence[UUID | None] | None = None,
) -> list[UUID]:
    """Ends what is active among these; returns which those were. `superseded_by` names what took each one's place.
    What was pinned meanwhile is not forgotten."""
    rows = await connection.fetch(_RETIRE, namespace, agent, state, list(ids), list(superseded_by or [None] * len(ids)))
    ended = [row["id"] for row in rows]
    await connection.execute(_FOLLOW, namespace, agent, ended)
    return ended


async def revive(connection: Any, namespace: str, agent: str, ids: Sequence[UUID]) -> list[UUID]:
    """Makes these recallable again, as long as they are neither expired nor untrue by now; returns which were not."""
    rows = await connection.fetch(_REVIVE, namespace, agent, list(ids))
    back = [row["id"] for row in rows]
    await connection.execute(_FOLLOW, namespace, agent, back)
    return back


async def condemn(connection: Any, namespace: str, agent: str, ids: Sequence[UUID]) -> None:
    """Quarantined ones of these never come back. When they left recall stays as it was: `as_of` goes by it."""
    await connection.execute(_CONDEMN, namespace, agent, list(ids))


async def pin(connection: Any, namespace: str, identity: UUID, pinned: bool) -> None:
    """A pinned memory neither expires nor is forgotten; who pinned it, or let it go, is on record.

    Raises:
        ApiError: 404, there is no such active memory.
    """
    found = await connection.fetchrow(_PIN, namespace, identity, pinned)
    if found is None:
        raise ApiError(404, "no active memory has this id in this namespace", field="id", value=identity)
    await connection.execute(_FOLLOW, namespace, found["agent_id"], [identity])
    if found["changed"]:
        action = "memory.pinned" if pinned else "memory.unpinned"
        await note_memories(connection, namespace, action, found["agent_id"], [identity])
