"""Stores memories: written and readable at once, indexed a moment later (see `indexer`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic_core import to_json

from learnloop_memory.audit.journal import actor, note_memories
from learnloop_memory.errors import ApiError
from learnloop_memory.experience.redact import redact
from learnloop_memory.ids import uuid7
from learnloop_memory.memory.kinds import POLICIES, MemoryType
from learnloop_memory.memory.text import text_of
from learnloop_memory.store.database import Database

Source = Literal["api", "episode", "consolidation", "import"]
FOREVER = datetime.max.replace(tzinfo=UTC)  # asyncpg sends it as 'infinity'

_COLUMNS = (
    "id, agent_id, memory_type, content, text, importance, source, origin, provenance, session_id, idempotency_key,"
    " pinned, valid_from, valid_to, expires_at, ends_at"
)
_ONE = f"""
WITH stored AS (
    INSERT INTO agent_memories (namespace, {_COLUMNS})
    SELECT s.namespace, $2::uuid, $3, $4, $5::jsonb, $6, $7::float8, $8, $9, $10::jsonb, $11, $12, $13::bool,
        $14::timestamptz, $15::timestamptz, $16::timestamptz, $17::timestamptz
    FROM set_config('app.namespace', $1, true) AS s(namespace)
    ON CONFLICT DO NOTHING RETURNING namespace, agent_id, id
), noted AS (
    INSERT INTO audit_pending (namespace, actor, action, subject, detail)
    SELECT namespace, $18, 'memory.stored', 'agent/' || agent_id, jsonb_build_object('id', id) FROM stored
)
INSERT INTO memory_pending SELECT namespace, agent_id, id FROM stored RETURNING memory_id
"""
_MANY = f"""
WITH stored AS (
    INSERT INTO agent_memories (namespace, {_COLUMNS})
    SELECT $1, * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::float8[], $8::text[],
        $9::text[], $10::jsonb[], $11::text[], $12::text[], $13::bool[], $14::timestamptz[], $15::timestamptz[],
        $16::timestamptz[], $17::timestamptz[])
    ON CONFLICT DO NOTHING RETURNING namespace, agent_id, id
)
INSERT INTO memory_pending SELECT namespace, agent_id, id FROM stored RETURNING memory_id
"""
_BY_KEY = """
SELECT id, agent_id, idempotency_key, memory_type, content FROM agent_memories
WHERE namespace = $1 AND (agent_id, idempotency_key) = ANY(SELECT * FROM unnest($2::text[], $3::text[]))
"""


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory to store; `content` is redacted on the way in."""

    agent: str
    memory_type: MemoryType
    content: dict[str, Any]
    importance: float = 0.5
    source: Source = "api"
    origin: str = ""
    provenance: dict[str, Any] | None = None
    session_id: str | None = None
    idempotency_key: str | None = None
    pinned: bool = False
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    ttl_seconds: int | None = None
    id: UUID = field(default_factory=uuid7)


def row_of(memory: NewMemory, now: datetime) -> tuple[Any, ...]:
    """The values of one row of `agent_memories`, after redaction."""
    content = redact(memory.content)
    ttl = memory.ttl_seconds if memory.ttl_seconds is not None else POLICIES[memory.memory_type].ttl_seconds
    expires = now + timedelta(seconds=ttl) if ttl is not None and not memory.pinned else None
    ends = [end for end in (expires, memory.valid_to) if end is not None]
    return (
        memory.id,
        memory.agent,
        memory.memory_type,
        to_json(content, inf_nan_mode="null").decode(),
        text_of(content),
        memory.importance,
        memory.source,
        memory.origin,
        to_json(redact(memory.provenance), inf_nan_mode="null").decode() if memory.provenance else None,
        memory.session_id,
        memory.idempotency_key,
        memory.pinned,
        memory.valid_from,
        memory.valid_to,
        expires,
        min(ends) if ends else FOREVER,
    )


async def insert(connection: Any, namespace: str, memories: Sequence[NewMemory]) -> set[UUID]:
    """Writes what is not there yet (by id and by idempotency key) and returns the ids that were new."""
    now = datetime.now(UTC)
    rows = [row_of(memory, now) for memory in memories]
    if not rows:
        return set()
    columns = [list(column) for column in zip(*rows, strict=True)]
    # COPY would take half the time; PostgreSQL does not offer it under row-level security.
    new = {row["memory_id"] for row in await connection.fetch(_MANY, namespace, *columns)}
    for agent in sorted({memory.agent for memory in memories if memory.id in new}):
        ids = [memory.id for memory in memories if memory.id in new and memory.agent == agent]
        await note_memories(connection, namespace, "memory.stored", agent, ids)
    return new


async def store(db: Database, namespace: str, memory: NewMemory) -> tuple[UUID, bool]:
    """Stores one memory; returns its id and whether it was there already under the same idempotency key.

    Raises:
        ApiError: 409, the key was used for something else.
        Unavailable: nothing was written.
    """
    if await db.fetch_as(namespace, _ONE, *row_of(memory, datetime.now(UTC)), actor.get()):
        return memory.id, False
    async with db.tenant(namespace) as connection:
        known = await _known(connection, namespace, [memory])
    return known[memory.id], True


async def store_many(db: Database, namespace: str, memories: Sequence[NewMemory]) -> list[tuple[UUID, bool]]:
    """Stores all of them or none; for each its id and whether it was there already.

    Raises:
        ApiError: 409, a key was used for something else; nothing was written.
        Unavailable: nothing was written.
    """
    async with db.tenant(namespace) as connection:
        new = await insert(connection, namespace, memories)
        known = await _known(connection, namespace, [memory for memory in memories if memory.id not in new])
    return [(known.get(memory.id, memory.id), memory.id not in new) for memory in memories]


async def _known(connection: Any, namespace: str, memories: Sequence[NewMemory]) -> dict[UUID, UUID]:
    """The stored id behind each of these memories' keys."""
    if not memories:
        return {}
    agents, keys = [memory.agent for memory in memories], [memory.idempotency_key for memory in memories]
    rows = {(row[1], row[2]): row for row in await connection.fetch(_BY_KEY, namespace, agents, keys)}
    found = {}
    for memory in memories:
        row = rows.get((memory.agent, memory.idempotency_key))
        if row is None or row["memory_type"] != memory.memory_type or not _same(row["content"], memory.content):
            raise ApiError(
                409,
                "this key already stands for another memory; use a new key for new content",
                field="idempotency_key",
                value=memory.idempotency_key,
            )
        found[memory.id] = row["id"]
    return found


def _same(stored: str, content: dict[str, Any]) -> bool:
    return bool(orjson.loads(stored) == orjson.loads(to_json(redact(content), inf_nan_mode="null")))
