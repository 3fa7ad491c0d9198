"""Reading an agent's memories page by page, and moving them as NDJSON."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from pydantic_core import to_json

from learnloop_memory.audit.journal import note_memories
from learnloop_memory.errors import ApiError
from learnloop_memory.store.absences import away
from learnloop_memory.store.database import Database

PAGE = 500
Place = tuple[datetime, UUID]  # when a memory was stored, and its id
_PAGE = f"""
SELECT m.id, m.agent_id, m.memory_type, m.content, m.importance, m.origin, m.source, m.session_id, m.pinned, m.state,
    m.superseded_by, m.created_at, m.retired_at, m.valid_from, m.valid_to, m.expires_at,
    coalesce(m.provenance ->> 'user', t.labels ->> 'user_id') AS user_id,
    coalesce(u.access_count, 0) AS access_count, u.last_accessed
FROM agent_memories m LEFT JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
LEFT JOIN trajectories t ON t.namespace = m.namespace AND t.trajectory_id =
    CASE WHEN starts_with(m.origin, 'trajectory/') THEN substr(m.origin, 12) END
WHERE m.namespace = $1 AND m.agent_id = $2
    AND ($7::uuid IS NULL OR (m.created_at, m.id) > ($3::timestamptz, $7))
    AND ($4 OR (m.state = 'active' AND m.ends_at > now()))
    AND ($6::timestamptz IS NULL OR (m.created_at <= $6 AND (m.retired_at IS NULL OR m.retired_at > $6)
        AND NOT {away("$1", "m.id", "$6")}))
ORDER BY m.created_at, m.id LIMIT $5
"""
# First the queue, as the indexer does: the other way round each could wait for the other.
_TAKE = """
SELECT FROM memory_pending WHERE namespace = $1 AND agent_id = $2 AND memory_id = ANY($3::uuid[])
ORDER BY memory_id FOR UPDATE
"""
_DELETE = "DELETE FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) RETURNING id"


async def page(
    db: Database,
    namespace: str,
    agent: str,
    *,
    limit: int,
    after: Place | None = None,
    ended: bool = False,
    at: datetime | None = None,
) -> list[dict[str, Any]]:
    """Up to `limit` memories in the order they were stored, after this place, whether the memory
    that was there still is or not.

    `user_id` is the pseudonym of whom it is about: as it was stored, or as the episode has it that it came from.

    Args:
        ended: retired and expired ones too, with why they ended.
        at: those the agent had at this instant.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with db.tenant(namespace) as connection:
        time, identity = after or (None, None)
        rows = await connection.fetch(_PAGE, namespace, agent, time, ended or at is not None, limit, at, identity)
    return [{**row, "content": orjson.loads(row["content"])} for row in rows]


async def export(db: Database, namespace: str, agent: str, at: datetime | None) -> AsyncIterator[bytes]:
    """One line of JSON for each memory, page by page: an export of any size holds one page in memory."""
    after: Place | None = None
    while True:
        rows = await page(db, namespace, agent, limit=PAGE, after=after, at=at)
        if rows:
            yield b"".join(to_json(row) + b"\n" for row in rows)
            after = (rows[-1]["created_at"], rows[-1]["id"])
        if len(rows) < PAGE:
            return


async def delete(db: Database, namespace: str, agent: str, ids: list[UUID]) -> int:
    """Deletes memories for good, with their vectors and counts; returns how many there were.

    There is no way to delete without naming what: neither here nor anywhere else.

    Raises:
        ApiError: 422, nothing was named.
        Unavailable: nothing was deleted.
    """
    if not ids:
        raise ApiError(422, "name at least one memory", field="ids")
    async with db.tenant(namespace) as connection:
        await connection.execute(_TAKE, namespace, agent, ids)
        gone = [row["id"] for row in await connection.fetch(_DELETE, namespace, agent, ids)]
        await note_memories(connection, namespace, "memory.deleted", agent, gone)
    return len(gone)
