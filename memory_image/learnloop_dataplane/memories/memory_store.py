"""Stores memories with what recall reads of them, one by one, in batches or from an export."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic_core import to_json

from learnloop_common.redaction.redactor import safe_origin
from learnloop_dataplane import errors, privacy, stems
from learnloop_dataplane.audit.chain import note_stored
from learnloop_dataplane.concurrency.limits import in_thread_if_large
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.recall import memory_types, questions, statements

Source = Literal["api", "episode", "consolidation", "import"]
FOREVER = datetime.max.replace(tzinfo=UTC)  # asyncpg sends it as 'infinity'
FEW = 20  # memories that are prepared in the event loop
USER, PEOPLE = "user", "people"
"""Key in a memory's provenance of the pseudonym of its person, and of those whose episodes it was distilled from;
erasures look for them there."""

_COLUMNS = (
    "id, agent_id, memory_type, content, text, importance, source, origin, provenance, session_id, idempotency_key,"
    " pinned, valid_from, valid_to, expires_at, ends_at, speaker, position, kind"
)
# The index row goes with the memory, so a recall finds it immediately; its vector follows (see `indexing`). A copy (an
# import) is as old as what it was made from.
_INSERT = f"""
WITH given AS (SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::float8[],
    $8::text[], $9::text[], $10::jsonb[], $11::text[], $12::text[], $13::bool[], $14::timestamptz[],
    $15::timestamptz[], $16::timestamptz[], $17::timestamptz[], $18::text[], $19::bigint[], $20::smallint[],
    $21::smallint[], $22::bigint[], $23::bool[], $24::bigint[], $25::bytea[], $26::smallint[], $27::bigint[],
    $28::bigint[], $29::bytea[]) AS g({_COLUMNS}, type_code, speaker_hash, person, session, terms, named, same, owner,
    about)
), stored AS (
    INSERT INTO agent_memories (namespace, {_COLUMNS}) SELECT $1, {_COLUMNS} FROM given
    ON CONFLICT DO NOTHING RETURNING agent_id, id, created_at, valid_from, ends_at, provenance
)
INSERT INTO memory_index (namespace, agent_id, memory_id, memory_type, kind, speaker, person, session, position,
    spoken_at, visible_from, visible_to, terms, named, same, owner, about, analyzer, kind_due)
SELECT $1, n.agent_id, n.id, u.type_code, u.kind, u.speaker_hash, u.person, u.session, u.position,
    least(n.created_at, (n.provenance ->> 'remembered_at')::timestamptz), greatest(n.created_at, n.valid_from),
    n.ends_at, u.terms, u.named, u.same, u.owner, u.about, $30,
    CASE WHEN $31 AND u.person AND u.kind <> {statements.Kind.RESET:d} THEN now() END
FROM stored n JOIN given u ON u.id = n.id RETURNING memory_id
"""
_BY_KEY = """
SELECT id, agent_id, idempotency_key, memory_type, content FROM agent_memories
WHERE namespace = $1 AND (agent_id, idempotency_key) = ANY(SELECT * FROM unnest($2::text[], $3::text[]))
"""


@dataclass(slots=True)
class NewMemory:
    """A memory to store; `content` and `origin` are redacted on the way in. `expires_at` precedes `ttl_seconds`."""

    agent: str
    memory_type: memory_types.MemoryType
    content: dict[str, Any]
    importance: float = 0.5
    source: Source = "api"
    origin: str = ""
    provenance: dict[str, Any] | None = None
    session_id: str | None = None
    speaker: str | None = None
    position: int = 0
    idempotency_key: str | None = None
    pinned: bool = False
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    ttl_seconds: int | None = None
    expires_at: datetime | None = None
    id: UUID = field(default_factory=uuid7)


def row_of(memory: NewMemory, now: datetime, analyzer: stems.Analyzer) -> tuple[Any, ...]:
    """The values of $2 to $29, after redaction."""
    content, encoded = redacted_content(memory.content)
    speaker = privacy.redact_text(questions.speaker_of(content, memory.speaker))
    about = (memory.provenance or {}).get(USER, "")
    own = "" if about or speaker else memory.session_id or ""  # the stranger of each session is somebody else
    columns = questions.index(content, speaker, memory.session_id, analyzer)
    expires, ends = life(memory, now, columns.kind)
    return (
        memory.id,
        memory.agent,
        memory.memory_type,
        encoded,
        stems.text_of(content),
        memory.importance,
        memory.source,
        safe_origin(memory.origin, privacy.redact_text),
        to_json(privacy.redact(memory.provenance), inf_nan_mode="null").decode() if memory.provenance else None,
        memory.session_id,
        memory.idempotency_key,
        memory.pinned,
        memory.valid_from,
        memory.valid_to,
        expires,
        ends,
        speaker,
        memory.position,
        int(columns.kind),
        memory_types.CODES[memory.memory_type],
        columns.speaker,
        columns.person,
        columns.session,
        columns.terms,
        columns.named,
        stems.same_of(orjson.loads(encoded), memory.agent, memory.memory_type, speaker, about),
        stems.thread_of("\n".join((memory.agent, about, speaker.casefold(), own))),
        columns.about,
    )


def redacted_content(content: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The content without secrets, and its JSON text."""
    content = privacy.redact(content)
    return content, to_json(content, inf_nan_mode="null").decode()


def life(memory: NewMemory, now: datetime, kind: int) -> tuple[datetime | None, datetime]:
    """When it expires, and until when it is recalled: a pinned memory's time to live waits until it is let go.

    What ends an instruction has no end of its own unless the writer gives one: the instruction would stand again.
    """
    usual = memory_types.POLICIES[memory.memory_type].ttl_seconds if kind < statements.Kind.WITHDRAWAL else None
    ttl = memory.ttl_seconds if memory.ttl_seconds is not None else usual
    expires = memory.expires_at or (now + timedelta(seconds=ttl) if ttl is not None else None)
    ends = [end for end in (None if memory.pinned else expires, memory.valid_to) if end is not None]
    return expires, min(ends, default=FOREVER)


async def insert(
    connection: Any, namespace: str, memories: Sequence[NewMemory], analyzer: stems.Analyzer, *, asks: bool = False
) -> set[UUID]:
    """Writes what is not there yet (by id and by idempotency key); returns the ids that were new.

    Args:
        asks: a distiller is asked for the kinds.
    """
    if not memories:
        return set()
    now = datetime.now(UTC)

    def columns() -> list[list[Any]]:
        return [list(column) for column in zip(*(row_of(memory, now, analyzer) for memory in memories), strict=True)]

    # COPY would take half the time; PostgreSQL does not offer it under row-level security.
    arrays = await (asyncio.to_thread(columns) if len(memories) > FEW else in_thread_if_large(namespace, columns))
    new = {row["memory_id"] for row in await connection.fetch(_INSERT, namespace, *arrays, analyzer.name, asks)}
    by_agent: dict[str, list[UUID]] = {}
    for memory in memories:
        if memory.id in new:
            by_agent.setdefault(memory.agent, []).append(memory.id)
    await note_stored(connection, namespace, by_agent)
    return new


async def stored_ids(connection: Any, namespace: str, memories: Sequence[NewMemory]) -> dict[UUID, UUID]:
    """The stored id behind each of these memories' keys.

    Raises:
        ApiError: 409, the key stands for something else.
    """
    if not memories:
        return {}
    agents, keys = [memory.agent for memory in memories], [memory.idempotency_key for memory in memories]
    rows = {(row[1], row[2]): row for row in await connection.fetch(_BY_KEY, namespace, agents, keys)}
    ids = {}
    for memory in memories:
        row = rows.get((memory.agent, memory.idempotency_key))
        content = orjson.loads(redacted_content(memory.content)[1])
        if row is None or row["memory_type"] != memory.memory_type or orjson.loads(row["content"]) != content:
            raise errors.ApiError(
                409,
                "this key already stands for another memory; use a new key for new content",
                field="idempotency_key",
                value=memory.idempotency_key,
            )
        ids[memory.id] = row["id"]
    return ids


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Result of storing a batch; `ids` in the order of the batch, None where a person opted out."""

    ids: list[UUID | None]
    duplicates: int
    opted_out: int


class MemoryWrites:
    """Stores memories of all agents. `users` are for each memory the person that it is about, as the application knows
    them, or None; a pseudonym stays what it is. Everything is stored in one transaction, or nothing.

    Args:
        stored: called with a namespace that has memories without a vector.
        asks: a distiller is asked for their kinds.

    Raises:
        ApiError: 409, a key was used for something else.
        Unavailable: nothing was written.
    """

    def __init__(
        self,
        db: Database,
        users: privacy.Users,
        analyzer: stems.Analyzer,
        stored: Callable[[str], None],
        *,
        asks: bool = False,
    ) -> None:
        self._db = db
        self._users = users
        self._analyzer = analyzer
        self._stored = stored
        self._asks = asks

    async def store_batch(
        self,
        namespace: str,
        memories: Sequence[NewMemory],
        users: Sequence[str | None],
        sources: Sequence[Sequence[str]] | None = None,
    ) -> StoredBatch:
        """Stores memories: durable, and recalled, when this returns. What is there already is not stored again.

        Args:
            sources: for each memory the people from whose episodes it was distilled.
        """
        given = list(zip(memories, users, sources or [()] * len(memories), strict=True))
        async with self._db.tenant(namespace) as connection:
            out = await self.name_people(connection, namespace, given)
            ours = [memory for memory in memories if memory.id not in out]
            new = await insert(connection, namespace, ours, self._analyzer, asks=self._asks)
            there = await stored_ids(connection, namespace, [memory for memory in ours if memory.id not in new])
        self._stored(namespace)
        return StoredBatch(
            ids=[None if memory.id in out else there.get(memory.id, memory.id) for memory in memories],
            duplicates=len(there),
            opted_out=len(out),
        )

    async def name_people(
        self, connection: Any, namespace: str, given: Sequence[tuple[NewMemory, str | None, Sequence[str]]]
    ) -> set[UUID]:
        """Writes pseudonyms into the memories; returns those that are about people who opted out.

        No person can opt out between this and the end of the caller's transaction: a memory that is written in it
        either comes after the opt-out and is not written, or is there when the opt-out erases.
        """
        named = {memory.id: {*([user] if user is not None else []), *people} for memory, user, people in given}
        everyone = set().union(*named.values())
        if not everyone:
            return set()
        await privacy.hold_off(connection, namespace)
        hashes = await self._users.hashes(connection, namespace, everyone)
        for memory, user, people in given:
            person = {USER: hashes[user]} if user is not None else {}
            behind = {PEOPLE: sorted({hashes[each] for each in people})} if people else {}
            if person or behind:
                memory.provenance = {**(memory.provenance or {}), **person, **behind}
        out = await self._users.opted_out(connection, namespace, hashes.values())
        return {identity for identity, people in named.items() if out.intersection(map(hashes.get, people))}
