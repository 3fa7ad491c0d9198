"""What feedback taught about an agent's memories, kept with a snapshot: its ranker, and how much each memory helped.

Memories keep both of their times, lessons do not: so a snapshot, otherwise a name for an instant, copies them. Uses
(how often, and when last) are no lessons: they say what to forget, and happened whatever is restored.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from learnloop_dataplane.postgres.sliced_transactions import SECONDS, pages
from learnloop_dataplane.ranking.outcome_credit import UTILITY

# $1 namespace, $2 agent. '{}' is a ranker that had learned nothing; a snapshot of before lessons were kept has NULL.
NOW = """
SELECT coalesce((SELECT r.state FROM memory_rankers r WHERE r.namespace = $1 AND r.agent_id = $2), '{}') AS ranker,
    coalesce(array_agg(u.memory_id), '{}') AS lesson_ids, coalesce(array_agg(u.helped), '{}') AS helped,
    coalesce(array_agg(u.hurt), '{}') AS hurt
FROM agent_memories m JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND (u.helped > 0 OR u.hurt > 0)
"""
_KEPT = """
SELECT ranker FROM memory_snapshots WHERE namespace = $1 AND agent_id = $2 AND name = $3 AND ranker IS NOT NULL
"""
_NOW_RANKER = "SELECT state FROM memory_rankers WHERE namespace = $1 AND agent_id = $2"
# Element by element what a snapshot kept; of one from before lessons were kept, nothing.
_THEN = """(SELECT l.id, l.helped, l.hurt
    FROM memory_snapshots s, LATERAL unnest(s.lesson_ids, s.helped, s.hurt) AS l(id, helped, hurt)
    WHERE s.namespace = $1 AND s.agent_id = $2 AND s.name = $3 AND s.ranker IS NOT NULL)"""
# Feedback holds the agent's ranker while it teaches: whoever has the row is alone with the lessons.
_ALONE = "SELECT FROM memory_rankers WHERE namespace = $1 AND agent_id = $2 FOR UPDATE"
_FORGET_RANKER = "DELETE FROM memory_rankers WHERE namespace = $1 AND agent_id = $2"
_SET_RANKER = """
INSERT INTO memory_rankers (namespace, agent_id, state, active)
VALUES ($1, $2, $3, coalesce(($3::jsonb ->> 'active')::bool, false))
ON CONFLICT (namespace, agent_id) DO UPDATE SET state = excluded.state, active = excluded.active, updated_at = now()
"""
# In the order of the ids, as the uses are counted: neither waits for the other in a circle.
_OTHERWISE = f"""
SELECT u.memory_id, coalesce(l.helped, 0) AS helped, coalesce(l.hurt, 0) AS hurt
FROM memory_use u LEFT JOIN {_THEN} l ON l.id = u.memory_id
WHERE u.namespace = $1 AND u.memory_id IN (SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2)
    AND (u.helped, u.hurt) IS DISTINCT FROM (coalesce(l.helped, 0), coalesce(l.hurt, 0))
ORDER BY u.memory_id FOR UPDATE OF u
"""
_SET = """
UPDATE memory_use u SET helped = l.helped, hurt = l.hurt
FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS l(id, helped, hurt)
WHERE u.namespace = $1 AND u.memory_id = l.id
"""
_FOLLOW = f"""
UPDATE memory_vec v SET utility = {UTILITY} FROM memory_use u
WHERE v.namespace = $1 AND v.agent_id = $2 AND v.memory_id = ANY($3::uuid[])
    AND u.namespace = v.namespace AND u.memory_id = v.memory_id
"""
# $6: by what the snapshot kept; else by what is known now.
_COPY = f"""
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed, helped, hurt)
SELECT $1, t.new_id, coalesce(u.access_count, 0), u.last_accessed,
    CASE WHEN $6::bool THEN coalesce(l.helped, 0) ELSE coalesce(u.helped, 0) END,
    CASE WHEN $6::bool THEN coalesce(l.hurt, 0) ELSE coalesce(u.hurt, 0) END
FROM unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id)
LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = t.old_id
LEFT JOIN {_THEN} l ON l.id = t.old_id
WHERE u.memory_id IS NOT NULL OR l.id IS NOT NULL
"""


async def alone(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends nobody teaches this agent. To be asked for before its memories are touched, in the
    order in which feedback takes both."""
    await connection.execute(_ALONE, namespace, agent, timeout=SECONDS)


async def kept(connection: Any, namespace: str, agent: str, name: str) -> bool:
    """Has this snapshot lessons? One that was taken before snapshots kept them has none."""
    return await connection.fetchval(_KEPT, namespace, agent, name) is not None


async def put_back(connection: Any, namespace: str, agent: str, name: str) -> None:
    """The agent has learned what the snapshot kept and nothing else; where it kept none, all stays."""
    ranker = await connection.fetchval(_KEPT, namespace, agent, name)
    if ranker is None:
        return
    await _set_ranker(connection, namespace, agent, ranker)
    async for rows in pages(connection, _OTHERWISE, namespace, agent, name):
        ids, helped, hurt = ([row[column] for row in rows] for column in ("memory_id", "helped", "hurt"))
        await connection.execute(_SET, namespace, ids, helped, hurt)
        await connection.execute(_FOLLOW, namespace, agent, ids)


async def copy(
    connection: Any, namespace: str, agent: str, name: str, old: Sequence[UUID], new: Sequence[UUID], *, kept: bool
) -> None:
    """The copies have helped as much as their originals by the snapshot, or (not `kept`) by now. Before the copies."""
    await connection.execute(_COPY, namespace, agent, name, list(old), list(new), kept)


async def hand_on(connection: Any, namespace: str, agent: str, name: str, into: str, *, kept: bool) -> None:
    """Another agent's ranker has learned what this one's had by the snapshot, or (not `kept`) has by now."""
    asked = (_KEPT, namespace, agent, name) if kept else (_NOW_RANKER, namespace, agent)
    await _set_ranker(connection, namespace, into, await connection.fetchval(*asked) or "{}")


async def _set_ranker(connection: Any, namespace: str, agent: str, state: str) -> None:
    if state == "{}":
        await connection.execute(_FORGET_RANKER, namespace, agent)
    else:
        await connection.execute(_SET_RANKER, namespace, agent, state)
