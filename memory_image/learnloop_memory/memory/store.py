"""Stores memories: the content in `agent_memories`, what is searched in `memory_vec`, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import orjson
from pgvector import HalfVector
from pydantic_core import to_json

from learnloop_memory.errors import ApiError
from learnloop_memory.experience.redact import redact
from learnloop_memory.ids import uuid7
from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.memory.text import terms, text_of
from learnloop_memory.store.database import Database

MemoryType = Literal["episodic", "semantic", "procedural"]
Source = Literal["api", "episode"]

_INSERT = """
INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, importance, source, idempotency_key)
SELECT $1, * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::float8[], $8::text[],
    $9::text[])
ON CONFLICT DO NOTHING RETURNING id, created_at
"""
_INSERT_VECTORS = """
INSERT INTO memory_vec
    (namespace, agent_id, memory_id, memory_type, embedder, importance, created_at, lexemes, embedding)
VALUES ($1, $2, $3, $4, $5, $6, $7, array_to_tsvector($8::text[]), $9)
"""
_BY_KEY = """
SELECT id, memory_type, content FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND idempotency_key = $3
"""


@dataclass(frozen=True)
class NewMemory:
    """A memory to store; `content` is redacted on the way in."""

    agent: str
    memory_type: MemoryType
    content: dict[str, Any]
    importance: float = 0.5
    source: Source = "api"
    idempotency_key: str | None = None
    id: UUID = field(default_factory=uuid7)


async def insert(connection: Any, namespace: str, memories: Sequence[NewMemory], embedder: Embedder) -> set[UUID]:
    """Writes what is not there yet (by id and by idempotency key) and returns the ids that were new."""
    contents = [redact(memory.content) for memory in memories]
    texts = [text_of(content) for content in contents]
    rows = await connection.fetch(
        _INSERT,
        namespace,
        [memory.id for memory in memories],
        [memory.agent for memory in memories],
        [memory.memory_type for memory in memories],
        [to_json(content, inf_nan_mode="null").decode() for content in contents],
        texts,
        [memory.importance for memory in memories],
        [memory.source for memory in memories],
        [memory.idempotency_key for memory in memories],
    )
    created = {row["id"]: row["created_at"] for row in rows}
    vectors = [
        (
            namespace,
            memory.agent,
            memory.id,
            memory.memory_type,
            embedder.name,
            memory.importance,
            created[memory.id],
            terms(text),
            HalfVector(embedder.embed(text)),
        )
        for memory, text in zip(memories, texts, strict=True)
        if memory.id in created
    ]
    await connection.executemany(_INSERT_VECTORS, vectors)
    return set(created)


async def store(db: Database, namespace: str, memory: NewMemory, embedder: Embedder) -> tuple[UUID, bool]:
    """Stores one memory; returns its id and whether it was there already under the same idempotency key.

    Raises:
        ApiError: 409, the key was used for something else.
        Unavailable: nothing was written.
    """
    async with db.tenant(namespace) as connection:
        if await insert(connection, namespace, [memory], embedder):
            return memory.id, False
        row = await connection.fetchrow(_BY_KEY, namespace, memory.agent, memory.idempotency_key)
    if row is None or row["memory_type"] != memory.memory_type or not _same(row["content"], memory.content):
        raise ApiError(
            409,
            "this key already stands for another memory; use a new key for new content",
            field="idempotency_key",
            value=memory.idempotency_key,
        )
    return row["id"], True


def _same(stored: str, content: dict[str, Any]) -> bool:
    return bool(orjson.loads(stored) == orjson.loads(to_json(redact(content), inf_nan_mode="null")))
