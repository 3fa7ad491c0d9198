"""Reads an agent's memories page by page, and moves them as NDJSON: an export is a copy, as of any instant."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from pydantic import Field, ValidationError
from pydantic_core import to_json

from learnloop_api.wire.base import Timestamp
from learnloop_dataplane.audit.chain import note_memories
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.lifecycle.distillation import MAX_PEOPLE, MAX_SOURCES
from learnloop_dataplane.memories import memory_store, routes
from learnloop_dataplane.postgres.database import Database

PAGE = 500
Place = tuple[datetime, UUID]  # when a memory was stored, and its id
# People of a memory: as it was stored, as its episode has it, or those of the episodes it was distilled from.
_PEOPLE = """
SELECT array_agg(DISTINCT person ORDER BY person) FILTER (WHERE person IS NOT NULL) AS people FROM (
    SELECT coalesce(m.provenance ->> 'user', t.person) AS person
    UNION ALL
    SELECT jsonb_array_elements_text(CASE jsonb_typeof(m.provenance -> 'people')
        WHEN 'array' THEN m.provenance -> 'people' END)) AS named"""
_PAGE = f"""
SELECT m.id, m.agent_id, m.memory_type, m.content, m.importance, m.origin, m.source, m.session_id,
    m.speaker, m.position, m.pinned, m.state,
    m.superseded_by, m.created_at, m.retired_at, m.valid_from, m.valid_to, m.expires_at,
    coalesce(m.provenance ->> 'user', t.person) AS user_id, coalesce(p.people, '{{}}') AS user_ids,
    coalesce(u.access_count, 0) AS access_count, u.last_accessed,
    coalesce(u.helped, 0) AS helped, coalesce(u.hurt, 0) AS hurt,
    least(m.created_at, (m.provenance ->> 'remembered_at')::timestamptz) AS remembered_at
FROM (SELECT m.* FROM agent_memories m
    WHERE m.namespace = $1 AND m.agent_id = $2 AND ($8::uuid[] IS NULL OR m.id = ANY($8))
        AND ($7::uuid IS NULL OR (m.created_at, m.id) > ($3::timestamptz, $7))
        AND ($4 OR (m.state = 'active' AND m.ends_at > now()))
        AND ($6::timestamptz IS NULL OR (m.created_at <= $6 AND (m.retired_at IS NULL OR m.retired_at > $6)))
    ORDER BY m.created_at, m.id LIMIT $5) m
LEFT JOIN LATERAL (SELECT u.* FROM memory_use u WHERE u.namespace = $1 AND u.memory_id = m.id OFFSET 0) u ON true
LEFT JOIN LATERAL (SELECT t.labels ->> 'user_id' AS person FROM trajectories t WHERE t.namespace = $1
    AND t.trajectory_id = CASE WHEN starts_with(m.origin, 'trajectory/') THEN substr(m.origin, 12) END OFFSET 0
    ) t ON true
CROSS JOIN LATERAL ({_PEOPLE}) AS p
ORDER BY m.created_at, m.id
"""
# A consolidation that ends copies in favour of these comes first: a statement sees only what is committed.
_HOLD = """
SELECT FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[]) ORDER BY id FOR UPDATE
"""
# Copies that ended in favour of a memory go with it.
_DELETE = """
WITH RECURSIVE named AS (
    SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND id = ANY($3::uuid[])
    UNION SELECT m.id FROM named n JOIN agent_memories m ON m.superseded_by = n.id
        AND m.namespace = $1 AND m.agent_id = $2 AND m.state IN ('duplicate', 'echo')
) DELETE FROM agent_memories WHERE namespace = $1 AND id IN (SELECT id FROM named) RETURNING id
"""


async def page(
    db: Database,
    namespace: str,
    agent: str,
    *,
    limit: int,
    after: Place | None = None,
    ended: bool = False,
    at: datetime | None = None,
    only: list[UUID] | None = None,
) -> list[dict[str, Any]]:
    """Up to `limit` memories in the order they were stored, after this place, even if its memory is gone.

    `user_id` is a person's pseudonym; `user_ids` also has those of up to a hundred episodes that the memory was
    distilled from. `remembered_at` is a copy's original time.

    Args:
        ended: retired and expired ones too.
        at: those the agent had at this instant.
        only: of these.
    """
    async with db.tenant(namespace) as connection:
        time, identity = after or (None, None)
        rows = await connection.fetch(_PAGE, namespace, agent, time, ended or at is not None, limit, at, identity, only)
    # The driver gives the first and the last instant, which PostgreSQL keeps as infinite, without their offset.
    given = ("valid_from", "valid_to", "expires_at")
    times = [{name: row[name] and row[name].replace(tzinfo=UTC) for name in given} for row in rows]
    return [{**row, **ends, "content": orjson.loads(row["content"])} for row, ends in zip(rows, times, strict=True)]


async def export(
    db: Database, namespace: str, agent: str, at: datetime | None, *, only: list[UUID] | None = None
) -> AsyncIterator[bytes]:
    """One line of JSON for each memory, page by page: an export of any size holds one page in memory.

    Args:
        only: of these; ended ones too.
    """
    after: Place | None = None
    while True:
        rows = await page(db, namespace, agent, limit=PAGE, after=after, at=at, only=only, ended=only is not None)
        if rows:
            yield b"".join(to_json(row) + b"\n" for row in rows)
            after = (rows[-1]["created_at"], rows[-1]["id"])
        if len(rows) < PAGE:
            return


async def delete(db: Database, namespace: str, agent: str, ids: list[UUID]) -> int:
    """Deletes the named memories and their copies for good, with vectors and counts; returns how many there were."""
    async with db.tenant(namespace) as connection:
        await connection.execute(_HOLD, namespace, agent, ids)
        gone = [row["id"] for row in await connection.fetch(_DELETE, namespace, agent, ids)]
        await note_memories(connection, namespace, "memory.deleted", agent, gone)
    return len(gone)


_MOST_PEOPLE = MAX_PEOPLE + MAX_SOURCES + 1  # that an export can name behind one memory


class ExportedMemory(routes.StoreMemory):
    """One line of an export."""

    id: UUID
    created_at: Timestamp | None = None
    remembered_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    user_ids: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(default=[], max_length=_MOST_PEOPLE)

    def memory(self) -> memory_store.NewMemory:
        """A copy: stored now, but valid since the original was stored."""
        since = self.remembered_at or self.created_at
        memory = super().memory()
        memory.source = "import"
        memory.origin = self.origin or "import"
        memory.provenance = {"imported": str(self.id)} | ({"remembered_at": since} if since else {})
        memory.idempotency_key = f"import:{self.id}"
        # Another clock may be ahead; what was stored there is true here already.
        memory.valid_from = self.valid_from or (self.created_at and min(self.created_at, datetime.now(UTC)))
        memory.expires_at = self.expires_at
        return memory


_TAKEN = frozenset(ExportedMemory.model_fields) - {"agent_id", "ttl_seconds", "idempotency_key"}


def read_line(agent: str, number: int, line: bytes) -> ExportedMemory:
    """Raises Invalid: the line does not hold an exported memory."""
    try:
        fields = orjson.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        taken = {name: value for name, value in fields.items() if name in _TAKEN}
        return ExportedMemory.model_validate_json(orjson.dumps(taken | {"agent_id": agent}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"line {number}: {first['msg']}; correct the line and send all again", field=where) from None
    except ValueError as error:
        raise Invalid(f"line {number}: {error}; correct the line and send all again", field="body") from None
