"""Snapshots: names for instants. Taking one costs a row: the memories keep both of their times anyway, and what
feedback taught by then is copied into it (see `lessons`)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from learnloop_memory.audit.journal import note
from learnloop_memory.errors import ApiError
from learnloop_memory.ids import uuid7
from learnloop_memory.life import lessons
from learnloop_memory.life.states import retire, revive
from learnloop_memory.store.absences import away
from learnloop_memory.store.database import Database

MOST_SNAPSHOTS = 100
_TAKE = f"""
INSERT INTO memory_snapshots (namespace, agent_id, name, ranker, lesson_ids, helped, hurt)
SELECT $1, $2, $3, n.* FROM ({lessons.NOW}) n ON CONFLICT DO NOTHING RETURNING taken_at
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
_OTHERS = f"SELECT id FROM agent_memories WHERE {_OWN} AND state = 'active' AND NOT ({_HAD})"
_ENDED = f"SELECT id FROM agent_memories WHERE {_HAD} AND state <> 'active' AND {_CLEAN}"
# What was distilled names the copies of its episodes, so that a rollback of their origin reaches it here, too.
_FORK = """
WITH copied AS (
    INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, importance, source, origin,
        provenance, session_id, pinned, valid_from, valid_to, expires_at, ends_at)
    SELECT namespace, t.new_id, $3, memory_type, content, text, importance, source, origin,
        coalesce(provenance, '{}') || jsonb_build_object('forked_from', $2::text, 'original', id,
            'remembered_at', least(created_at, (provenance ->> 'remembered_at')::timestamptz))
            || CASE jsonb_typeof(provenance->'from') WHEN 'array' THEN jsonb_build_object('from', (
                SELECT jsonb_agg(coalesce(c.new_id::text, f.id))
                FROM jsonb_array_elements_text(provenance->'from') f(id)
                LEFT JOIN unnest($4::uuid[], $5::uuid[]) AS c(old_id, new_id) ON c.old_id::text = f.id)) ELSE '{}' END,
        session_id, pinned, coalesce(valid_from, created_at), valid_to, expires_at,
        coalesce(least(CASE WHEN NOT pinned THEN expires_at END, valid_to), 'infinity')
    FROM agent_memories m JOIN unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id) ON m.id = t.old_id
    WHERE m.namespace = $1
    RETURNING namespace, agent_id, id
)
INSERT INTO memory_pending SELECT namespace, agent_id, id FROM copied
"""
_IDS = f"""
SELECT id FROM agent_memories WHERE {_HAD} AND (ends_at > now() OR state <> 'active') AND {_CLEAN}
ORDER BY created_at, id
"""
# Two forks at once would each find the other agent without memories, and give it all of them twice.
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
        taken = await connection.fetchval(_TAKE, namespace, agent, name)
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
    """Forgets a name; what only it kept from being deleted goes with the next retention.

    Raises:
        ApiError: 404, there is no such snapshot.
    """
    async with db.tenant(namespace) as connection:
        await _instant(connection, namespace, agent, name)
        await connection.execute(_DROP, namespace, agent, name)
        await note(connection, namespace, "memory.snapshot.dropped", f"agent/{agent}", {"name": name})


async def restore(db: Database, namespace: str, agent: str, name: str) -> dict[str, int]:
    """Makes the memory what it was: what the agent did not have then is retired, what it had comes back, but for what
    is of origins that were quarantined or rolled back since. What feedback taught is what it was, too. Itself undone
    by a snapshot taken before it.

    Raises:
        ApiError: 404, there is no such snapshot.
        Unavailable: nothing was changed.
    """
    async with db.tenant(namespace) as connection:
        at = await _instant(connection, namespace, agent, name)
        await lessons.alone(connection, namespace, agent)
        others = [row["id"] for row in await connection.fetch(_OTHERS, namespace, agent, at)]
        ended = [row["id"] for row in await connection.fetch(_ENDED, namespace, agent, at)]
        removed = await retire(connection, namespace, agent, others, "replaced")
        returned = await revive(connection, namespace, agent, ended)
        if (learned := await lessons.then(connection, namespace, agent, name)) is not None:
            await lessons.put_back(connection, namespace, agent, learned)
        changed = {"removed": len(removed), "returned": len(returned)}
        await note(connection, namespace, "memory.restored", f"agent/{agent}", {"name": name, **changed})
    return changed


async def fork(db: Database, namespace: str, agent: str, name: str, into: str) -> int:
    """Copies what the agent had then, and had learned by then of what helps, to another agent that has no memory yet;
    returns how many memories that were.

    Raises:
        ApiError: 404, there is no such snapshot; 409, the other agent has memories.
        Unavailable: nothing was copied.
    """
    async with db.tenant(namespace) as connection:
        at = await _instant(connection, namespace, agent, name)
        await connection.execute(_ALONE, namespace, into)
        if await connection.fetchval(_HAS_ANY, namespace, into):
            raise ApiError(
                409, "this agent has memories already; fork into one that has none", field="into", value=into
            )
        copies = {row["id"]: uuid7() for row in await connection.fetch(_IDS, namespace, agent, at)}
        ids = list(copies)
        await connection.execute(_FORK, namespace, agent, into, ids, list(copies.values()))
        learned = await lessons.then(connection, namespace, agent, name)
        await lessons.hand_on(connection, namespace, agent, learned, into, copies)
        await note(
            connection, namespace, "memory.forked", f"agent/{into}", {"source": agent, "name": name, "count": len(ids)}
        )
    return len(ids)


async def _instant(connection: Any, namespace: str, agent: str, name: str) -> datetime:
    at = await connection.fetchval(_GET, namespace, agent, name)
    if at is None:
        raise ApiError(404, "this agent has no snapshot of this name; list them first", field="name", value=name)
    found: datetime = at
    return found
