"""Snapshots: names for instants of an agent's memory, to restore or to fork into another agent.

Memories keep the times of their beginning and end anyway. What outcomes taught (how much each memory helped and hurt)
has no times, so a snapshot copies it. Uses are not restored: they happened, and decide what to forget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.lifecycle.retirement import retire, revive
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.memory_absences import away
from learnloop_dataplane.postgres.row_ids import uuid7
from learnloop_dataplane.postgres.sliced_transactions import SECONDS, Progress, alone, pages, whole
from learnloop_dataplane.privacy.people import hold_off
from learnloop_dataplane.recall.outcomes import OUTCOME

MOST_SNAPSHOTS = 100
_LESSONS_NOW = """
SELECT coalesce(array_agg(u.memory_id), '{}') AS lesson_ids, coalesce(array_agg(u.helped), '{}') AS helped,
    coalesce(array_agg(u.hurt), '{}') AS hurt
FROM agent_memories m JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND (u.helped > 0 OR u.hurt > 0)
"""
_LESSONS_THEN = """(SELECT l.id, l.helped, l.hurt
    FROM memory_snapshots s, LATERAL unnest(s.lesson_ids, s.helped, s.hurt) AS l(id, helped, hurt)
    WHERE s.namespace = $1 AND s.agent_id = $2 AND s.name = $3)"""
# In the order of the ids, as the uses are counted: neither waits for the other in a circle.
_LESSONS_SINCE = f"""
SELECT u.memory_id, coalesce(l.helped, 0) AS helped, coalesce(l.hurt, 0) AS hurt
FROM memory_use u LEFT JOIN {_LESSONS_THEN} l ON l.id = u.memory_id
WHERE u.namespace = $1 AND u.memory_id IN (SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2)
    AND (u.helped, u.hurt) IS DISTINCT FROM (coalesce(l.helped, 0), coalesce(l.hurt, 0))
ORDER BY u.memory_id FOR UPDATE OF u
"""
_SET_LESSONS = """
UPDATE memory_use u SET helped = l.helped, hurt = l.hurt
FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS l(id, helped, hurt)
WHERE u.namespace = $1 AND u.memory_id = l.id
"""
_FOLLOW_LESSONS = f"""
UPDATE memory_index v SET outcome = {OUTCOME} FROM memory_use u
WHERE v.namespace = $1 AND v.agent_id = $2 AND v.memory_id = ANY($3::uuid[])
    AND u.namespace = v.namespace AND u.memory_id = v.memory_id
"""
_COPY_LESSONS = f"""
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed, helped, hurt)
SELECT $1, t.new_id, coalesce(u.access_count, 0), u.last_accessed, coalesce(l.helped, 0), coalesce(l.hurt, 0)
FROM unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id)
LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = t.old_id
LEFT JOIN {_LESSONS_THEN} l ON l.id = t.old_id
WHERE u.memory_id IS NOT NULL OR l.id IS NOT NULL
"""
_TAKE = f"""
INSERT INTO memory_snapshots (namespace, agent_id, name, lesson_ids, helped, hurt)
SELECT $1, $2, $3, n.* FROM ({_LESSONS_NOW}) n ON CONFLICT DO NOTHING RETURNING taken_at
"""
_GET = "SELECT taken_at FROM memory_snapshots WHERE namespace = $1 AND agent_id = $2 AND name = $3"
_LIST = """
SELECT name, taken_at FROM memory_snapshots WHERE namespace = $1 AND agent_id = $2 ORDER BY taken_at DESC, name
"""
_DROP = "DELETE FROM memory_snapshots WHERE namespace = $1 AND agent_id = $2 AND name = $3"
_OWN = "namespace = $1 AND agent_id = $2"
# What the agent had at $3: stored by then, not retired by then, and not away then to come back later.
_HAD = (
    f"{_OWN} AND created_at <= $3 AND (retired_at IS NULL OR retired_at > $3)"
    f" AND NOT {away('$1', 'agent_memories.id', '$3')}"
)
# What was quarantined or rolled back since stays out: naming an instant must not keep a poisoned source alive.
_CLEAN = """state NOT IN ('quarantined', 'rolled-back') AND origin NOT IN (
    SELECT origin FROM agent_memories WHERE namespace = $1 AND agent_id = $2
        AND state IN ('quarantined', 'rolled-back') AND origin <> '' AND source <> 'consolidation')"""
_OTHERS = f"{{what}} FROM agent_memories WHERE {_OWN} AND state = 'active' AND NOT ({_HAD})"
_ENDED = f"{{what}} FROM agent_memories WHERE {_HAD} AND state <> 'active' AND {_CLEAN}"
# The copy gets the original's index row: it can be recalled immediately, and no text is embedded twice.
_COPY = f"""
WITH copied AS (
    INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, importance, source, origin,
        provenance, session_id, speaker, position, kind, pinned, valid_from, valid_to, expires_at, ends_at)
    SELECT namespace, t.new_id, $3, memory_type, content, text, importance, source, origin,
        coalesce(provenance, '{{}}') || jsonb_build_object('forked_from', $2::text, 'original', id,
            'remembered_at', least(created_at, (provenance ->> 'remembered_at')::timestamptz)),
        session_id, speaker, position, kind, pinned, coalesce(valid_from, created_at), valid_to, expires_at,
        coalesce(least(CASE WHEN NOT pinned THEN expires_at END, valid_to), 'infinity')
    FROM agent_memories m JOIN unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id) ON m.id = t.old_id
    WHERE m.namespace = $1
    RETURNING id, greatest(created_at, valid_from) AS begins, ends_at
), indexed AS (
    INSERT INTO memory_index (namespace, agent_id, memory_id, memory_type, kind, speaker, person, session, position,
        said_at, visible_from, visible_to, terms, analyzer, embedder, embedding, next_embedder, next_embedding, outcome)
    SELECT v.namespace, $3, c.id, v.memory_type, v.kind, v.speaker, v.person, v.session, v.position, v.said_at,
        c.begins, c.ends_at, v.terms, v.analyzer, v.embedder, v.embedding, v.next_embedder, v.next_embedding,
        coalesce({OUTCOME}, 0)
    FROM copied c JOIN unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id) ON t.new_id = c.id
    JOIN memory_index v ON v.namespace = $1 AND v.agent_id = $2 AND v.memory_id = t.old_id
    LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = c.id
)
SELECT count(*) FROM copied
"""
_CHOSEN = f"{_HAD} AND (ends_at > now() OR state <> 'active') AND {_CLEAN}"
_HOW_MANY = f"SELECT count(*) FROM agent_memories WHERE {_CHOSEN}"
_IDS = f"SELECT id FROM agent_memories WHERE {_CHOSEN} ORDER BY created_at, id"
# What was distilled names the copies of its episodes, so that a rollback of their origin reaches it here, too.
_NAMED = f"""
SELECT DISTINCT named FROM agent_memories CROSS JOIN LATERAL jsonb_array_elements_text(
    CASE jsonb_typeof(provenance -> 'from') WHEN 'array' THEN provenance -> 'from' ELSE '[]' END) AS f(named)
WHERE {_HAD}
"""
_RENAME = """
UPDATE agent_memories m SET provenance = m.provenance || jsonb_build_object('from', (
    SELECT jsonb_agg(coalesce(c.new_id, f.source) ORDER BY f.place)
    FROM jsonb_array_elements_text(m.provenance -> 'from') WITH ORDINALITY AS f(source, place)
    LEFT JOIN unnest($3::text[], $4::text[]) AS c(old_id, new_id) ON c.old_id = f.source))
WHERE m.namespace = $1 AND m.agent_id = $2 AND jsonb_typeof(m.provenance -> 'from') = 'array'
    AND m.provenance -> 'from' <> '[]'
"""
# What happened to the originals meanwhile happened to the copies: erased, deleted, condemned, or said whose they are.
_GONE_MEANWHILE = f"""
WITH gone AS (
    DELETE FROM agent_memories c WHERE c.namespace = $1 AND c.agent_id = $3 AND NOT EXISTS (
        SELECT 1 FROM agent_memories WHERE {_OWN} AND id = (c.provenance ->> 'original')::uuid AND {_CLEAN})
    RETURNING 1
) SELECT count(*) FROM gone
"""
_NAMED_MEANWHILE = """
UPDATE agent_memories c SET provenance = c.provenance || jsonb_strip_nulls(
    jsonb_build_object('user', m.provenance -> 'user', 'people', m.provenance -> 'people'))
FROM agent_memories m
WHERE c.namespace = $1 AND c.agent_id = $3 AND m.namespace = $1 AND m.agent_id = $2
    AND m.id = (c.provenance ->> 'original')::uuid
    AND (m.provenance -> 'user', m.provenance -> 'people')
        IS DISTINCT FROM (c.provenance -> 'user', c.provenance -> 'people')
"""
_ALL = "SELECT count(*) FROM agent_memories WHERE namespace = $1 AND agent_id = $2"
# Two concurrent forks would each find the other agent empty, and copy everything twice.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('fork/' || $1 || '/' || $2, 0))"
_HAS_ANY = "SELECT EXISTS(SELECT 1 FROM agent_memories WHERE namespace = $1 AND agent_id = $2)"


@dataclass(frozen=True)
class Snapshot:
    """A name and its instant."""

    name: str
    taken_at: datetime


async def take(db: Database, namespace: str, agent: str, name: str) -> Snapshot:
    """Names this instant.

    Raises:
        ApiError: 409, the name is taken or there are 100 already.
    """
    async with db.tenant(namespace) as connection:
        if len(await connection.fetch(_LIST, namespace, agent)) >= MOST_SNAPSHOTS:
            raise ApiError(409, "an agent has at most 100 snapshots; delete one first", field="name", value=name)
        taken = await connection.fetchval(_TAKE, namespace, agent, name, timeout=SECONDS)
        if taken is not None:
            await note(connection, namespace, "memory.snapshot.taken", f"agent/{agent}", {"name": name})
    if taken is None:
        raise ApiError(409, "a snapshot of this agent has this name; choose another", field="name", value=name)
    return Snapshot(name, taken)


async def list_all(db: Database, namespace: str, agent: str) -> list[Snapshot]:
    """An agent's snapshots, newest first."""
    async with db.tenant(namespace) as connection:
        return [Snapshot(row["name"], row["taken_at"]) for row in await connection.fetch(_LIST, namespace, agent)]


async def drop(db: Database, namespace: str, agent: str, name: str) -> None:
    """Deletes a name; memories that only it preserved go with the next retention.

    Raises:
        ApiError: 404, no snapshot has this name.
    """
    async with db.tenant(namespace) as connection:
        await _instant(connection, namespace, agent, name)
        await connection.execute(_DROP, namespace, agent, name)
        await note(connection, namespace, "memory.snapshot.dropped", f"agent/{agent}", {"name": name})


async def restore(db: Database, namespace: str, agent: str, name: str, progress: Progress) -> dict[str, int]:
    """Makes the memory, and what outcomes had taught, what it was. Origins quarantined or rolled back since stay out.

    A snapshot taken before it can undo it.

    Raises:
        ApiError: 404, no snapshot has this name; 503, it takes too long, and nothing was changed.
        Unavailable: nothing was changed.
    """
    async with whole(db, namespace) as connection:
        at = await _instant(connection, namespace, agent, name)
        await alone(connection, namespace, agent)
        arguments, changed = (namespace, agent, at), {"removed": 0, "returned": 0}
        for statement in (_OTHERS, _ENDED):
            count = statement.format(what="SELECT count(*)")
            progress.of += await connection.fetchval(count, *arguments, timeout=SECONDS)
        async for rows in pages(connection, _OTHERS.format(what="SELECT id"), *arguments):
            ids = [row["id"] for row in rows]
            changed["removed"] += len(await retire(connection, namespace, agent, ids, "replaced"))
            progress.done += len(ids)
        async for rows in pages(connection, _ENDED.format(what="SELECT id"), *arguments):
            ids = [row["id"] for row in rows]
            changed["returned"] += len(await revive(connection, namespace, agent, ids))
            progress.done += len(ids)
        await _put_lessons_back(connection, namespace, agent, name)
        await note(connection, namespace, "memory.restored", f"agent/{agent}", {"name": name, **changed})
    return changed


async def fork(db: Database, namespace: str, agent: str, name: str, into: str, progress: Progress) -> int:
    """Copies the memory of that instant to an agent that has none; returns how many memories were copied.

    Raises:
        ApiError: 404, no snapshot has this name; 409, the other agent has memories; 503, it takes too long, and nothing
            was copied.
        Unavailable: nothing was copied.
    """
    async with whole(db, namespace) as connection:
        at = await _instant(connection, namespace, agent, name)
        await connection.execute(_ALONE, namespace, into, timeout=SECONDS)
        if await connection.fetchval(_HAS_ANY, namespace, into):
            raise _not_empty(into)
        progress.of = await connection.fetchval(_HOW_MANY, namespace, agent, at, timeout=SECONDS)
        rows = await connection.fetch(_NAMED, namespace, agent, at, timeout=SECONDS)
        named, copies = {row["named"] for row in rows}, dict[str, str]()
        copied = 0
        async for rows in pages(connection, _IDS, namespace, agent, at):
            old, new = [row["id"] for row in rows], [uuid7() for _ in rows]
            await _copy_lessons(connection, namespace, agent, name, old, new)
            copied += await connection.fetchval(_COPY, namespace, agent, into, old, new)
            copies |= {str(a): str(b) for a, b in zip(old, new, strict=True) if str(a) in named}
            progress.done += len(old)
        if copies:
            renamed = (namespace, into, list(copies), list(copies.values()))
            await connection.execute(_RENAME, *renamed, timeout=SECONDS)
        copied -= await _follow(connection, namespace, agent, into)
        if await connection.fetchval(_ALL, namespace, into, timeout=SECONDS) != copied:
            raise _not_empty(into)
        await note(
            connection, namespace, "memory.forked", f"agent/{into}", {"source": agent, "name": name, "count": copied}
        )
    return copied


async def _follow(connection: Any, namespace: str, agent: str, into: str) -> int:
    """Applies to the copies what others committed about the originals meanwhile; returns how many were deleted."""
    await hold_off(connection, namespace, seconds=SECONDS)  # an erasure after this sees the copies
    both = (namespace, agent, into)
    await connection.execute(_NAMED_MEANWHILE, *both, timeout=SECONDS)
    return int(await connection.fetchval(_GONE_MEANWHILE, *both, timeout=SECONDS))


def _not_empty(into: str) -> ApiError:
    return ApiError(409, "this agent has memories already; fork into one that has none", field="into", value=into)


async def _instant(connection: Any, namespace: str, agent: str, name: str) -> datetime:
    at = await connection.fetchval(_GET, namespace, agent, name)
    if at is None:
        raise ApiError(404, "this agent has no snapshot of this name; list them first", field="name", value=name)
    instant: datetime = at
    return instant


async def _put_lessons_back(connection: Any, namespace: str, agent: str, name: str) -> None:
    """Restores what outcomes had taught. The caller holds the agent's lock (`alone`)."""
    async for rows in pages(connection, _LESSONS_SINCE, namespace, agent, name):
        ids, helped, hurt = ([row[column] for row in rows] for column in ("memory_id", "helped", "hurt"))
        await connection.execute(_SET_LESSONS, namespace, ids, helped, hurt)
        await connection.execute(_FOLLOW_LESSONS, namespace, agent, ids)


async def _copy_lessons(
    connection: Any, namespace: str, agent: str, name: str, old: Sequence[UUID], new: Sequence[UUID]
) -> None:
    """Gives the copies, before they are written, what outcomes had taught about their originals."""
    await connection.execute(_COPY_LESSONS, namespace, agent, name, list(old), list(new))
