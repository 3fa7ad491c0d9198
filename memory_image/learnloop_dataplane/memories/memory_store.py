"""Stores memories: written and readable at once, indexed a moment later (see `indexer`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson
from pgvector import HalfVector
from pydantic_core import to_json

from learnloop_common.redaction.fields import safe_origin
from learnloop_common.redaction.redactor import harmless
from learnloop_dataplane.audit.chain import actor, note_stored
from learnloop_dataplane.concurrency.large_work import in_thread_if_large
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.row_ids import uuid7
from learnloop_dataplane.privacy.redaction import redact, redact_text
from learnloop_dataplane.ranking.memory_types import CODES, POLICIES, MemoryType
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.text.tokenizer import pack, text_of, thread_of

Source = Literal["api", "episode", "consolidation", "import"]
FOREVER = datetime.max.replace(tzinfo=UTC)  # asyncpg sends it as 'infinity'

TEXT = 4  # where `row_of` has what is searched
_COLUMNS = (
    "id, agent_id, memory_type, content, text, importance, source, origin, provenance, session_id, idempotency_key,"
    " pinned, valid_from, valid_to, expires_at, ends_at"
)
_STORED = f"""stored AS (
    INSERT INTO agent_memories (namespace, {_COLUMNS})
    SELECT s.namespace, {_COLUMNS}
    FROM set_config('app.namespace', $1, true) AS s(namespace), LATERAL (SELECT * FROM given OFFSET 0) g
    WHERE s.namespace IS NOT NULL
    ON CONFLICT DO NOTHING RETURNING namespace, agent_id, id, importance, created_at, valid_from, ends_at
)"""
# One record of the audit for each writer and agent, in the form of `audit.journal.note_stored`.
_NOTED = """noted AS (
    INSERT INTO audit_pending (namespace, actor, action, subject, detail)
    SELECT n.namespace, g.actor, 'memory.stored', 'agent/' || n.agent_id, CASE count(*)
        WHEN 1 THEN jsonb_build_object('id', (array_agg(n.id))[1])
        ELSE jsonb_build_object('count', count(*), 'first', (array_agg(n.id ORDER BY g.place))[1],
            'last', (array_agg(n.id ORDER BY g.place DESC))[1],
            'ids_sha256', encode(sha256(string_agg(uuid_send(n.id), ''::bytea ORDER BY g.place)), 'hex')) END
    FROM stored n JOIN given g ON g.id = n.id GROUP BY n.namespace, g.actor, n.agent_id
)"""
_GIVEN = """unnest($2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[],
    $7::float8[], $8::text[], $9::text[], $10::jsonb[], $11::text[], $12::text[],
    $13::bool[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[],
    $17::timestamptz[], $18::text[]"""
_QUEUED = "INSERT INTO memory_pending SELECT namespace, agent_id, id FROM stored"
# What waits for the indexer.
_LATER = f"""
WITH given AS (SELECT * FROM {_GIVEN}) WITH ORDINALITY AS g({_COLUMNS}, actor, place)), {_STORED}, {_NOTED}
{_QUEUED} RETURNING memory_id
"""
# The same of one writer, whose records are made here: to sort thousands of ids by agent takes PostgreSQL longer.
_MANY = f"WITH given AS (SELECT * FROM {_GIVEN}) AS g({_COLUMNS}, actor)), {_STORED} {_QUEUED}"
_WHICH = f"{_MANY} RETURNING memory_id"
# Of memories that are new in any case: PostgreSQL looks for them in every index otherwise, before it writes them.
_NEW = _MANY.replace("ON CONFLICT DO NOTHING", "")
# What is indexed in the same statement.
_AT_ONCE = f"""
WITH given AS (SELECT * FROM {_GIVEN},
    $19::smallint[], $20::bigint[], $21::bytea[], $22::halfvec[]) WITH ORDINALITY
    AS g({_COLUMNS}, actor, kind, thread, terms, embedding, place)), {_STORED}, {_NOTED}
INSERT INTO memory_vec (namespace, agent_id, memory_id, memory_type, embedder, importance, thread, created_at,
    visible_from, visible_to, terms, embedding, analyzer)
SELECT n.namespace, n.agent_id, n.id, g.kind, $23, n.importance, g.thread, n.created_at,
    greatest(n.created_at, n.valid_from), n.ends_at, g.terms, g.embedding, $24
FROM stored n JOIN given g ON g.id = n.id RETURNING memory_id
"""
_JUDGED = """
INSERT INTO memory_use (namespace, memory_id, helped, hurt)
SELECT $1, * FROM unnest($2::uuid[], $3::float8[], $4::float8[])
"""
_BY_KEY = """
SELECT id, agent_id, idempotency_key, memory_type, content FROM agent_memories
WHERE namespace = $1 AND (agent_id, idempotency_key) = ANY(SELECT * FROM unnest($2::text[], $3::text[]))
"""


@dataclass(slots=True)
class NewMemory:
    """A memory to store; `content` and `origin` are redacted on the way in. `expires_at` goes before `ttl_seconds`.
    `helped` and `hurt`: what feedback said of it elsewhere (`insert` alone takes them)."""

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
    expires_at: datetime | None = None
    helped: float = 0.0
    hurt: float = 0.0
    id: UUID = field(default_factory=uuid7)


Written = tuple[NewMemory, str]  # and who wrote it, for the audit


def row_of(memory: NewMemory, now: datetime) -> tuple[Any, ...]:
    """The values of one row of `agent_memories`, after redaction."""
    content, encoded = redacted_content(memory.content)
    expires, ends = life(memory, now)
    return (
        memory.id,
        memory.agent,
        memory.memory_type,
        encoded,
        text_of(content),
        memory.importance,
        memory.source,
        safe_origin(memory.origin, redact_text),
        to_json(redact(memory.provenance), inf_nan_mode="null").decode() if memory.provenance else None,
        memory.session_id,
        memory.idempotency_key,
        memory.pinned,
        memory.valid_from,
        memory.valid_to,
        expires,
        ends,
    )


def redacted_content(content: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Without what looks like a secret, and its JSON text. Most have none, and their JSON text shows it."""
    try:
        encoded = orjson.dumps(content).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, a long integer
        encoded = None
    if encoded is not None and harmless(encoded):
        return content, encoded
    content = redact(content)
    return content, to_json(content, inf_nan_mode="null").decode()


def life(memory: NewMemory, now: datetime) -> tuple[datetime | None, datetime]:
    """When it expires, and until when it is recalled: a pinned memory's time to live waits until it is let go."""
    ttl = memory.ttl_seconds if memory.ttl_seconds is not None else POLICIES[memory.memory_type].ttl_seconds
    expires = memory.expires_at or (now + timedelta(seconds=ttl) if ttl is not None else None)
    ends = [end for end in (None if memory.pinned else expires, memory.valid_to) if end is not None]
    return expires, min(ends, default=FOREVER)


async def insert(connection: Any, namespace: str, memories: Sequence[NewMemory]) -> set[UUID]:
    """Writes what is not there yet (by id and by idempotency key) for the indexer; returns the ids that were new."""
    if not memories:
        return set()
    # COPY would take half the time; PostgreSQL does not offer it under row-level security.
    _, arrays = await in_thread_if_large(namespace, _given, [(memory, actor.get()) for memory in memories])
    if all(memory.source == "api" and memory.idempotency_key is None for memory in memories):
        await connection.execute(_NEW, namespace, *arrays)
        new = {memory.id for memory in memories}
    else:
        new = {row["memory_id"] for row in await connection.fetch(_WHICH, namespace, *arrays)}
    by_agent: dict[str, list[UUID]] = {}
    for memory in memories:
        if memory.id in new:
            by_agent.setdefault(memory.agent, []).append(memory.id)
    await note_stored(connection, namespace, by_agent)
    if judged := [memory for memory in memories if memory.id in new and (memory.helped or memory.hurt)]:
        uses = ([memory.id for memory in judged], [m.helped for m in judged], [m.hurt for m in judged])
        await connection.execute(_JUDGED, namespace, *uses)
    return new


async def insert_now(
    db: Database, namespace: str, written: Sequence[Written], analyzer: Analyzer, embedder: Embedder
) -> set[UUID]:
    """The same in a transaction of its own, one round trip, and indexed with it where the embedder is instant.

    Raises:
        Unavailable: nothing was written.
    """
    texts, arrays = await in_thread_if_large(namespace, _given, written)
    if not embedder.instant:
        return {row["memory_id"] for row in await db.fetch_as(namespace, _LATER, *arrays)}
    found = await db.fetch_as(
        namespace,
        _AT_ONCE,
        *arrays,
        [CODES[memory.memory_type] for memory, _ in written],
        [thread_of(memory.session_id) for memory, _ in written],
        [pack(analyzer.terms(text)) for text in texts],
        [HalfVector(vector) for vector in await embedder.embed(texts)],
        embedder.name,
        analyzer.name,
    )
    return {row["memory_id"] for row in found}


def _given(written: Sequence[Written]) -> tuple[list[str], list[list[Any]]]:
    """What is searched of each memory, and $2 to $18 of the statements."""
    now = datetime.now(UTC)
    columns = list(zip(*(row_of(memory, now) for memory, _ in written), strict=True))
    return list(columns[TEXT]), [*map(list, columns), [by for _, by in written]]


async def known_ids(connection: Any, namespace: str, memories: Sequence[NewMemory]) -> dict[UUID, UUID]:
    """The stored id behind each of these memories' keys.

    Raises:
        ApiError: 409, the key stands for something else.
    """
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
