"""What outcomes taught about an agent's memories, kept with a snapshot: how much each memory helped and hurt.

Memories keep both of their times, lessons do not: so a snapshot, otherwise a name for an instant, copies them. Uses
(how often, and when last) are no lessons: they say what to forget, and happened whatever is restored.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from learnloop_dataplane.postgres.sliced_transactions import pages
from learnloop_dataplane.recall.outcomes import OUTCOME

NOW = """
SELECT coalesce(array_agg(u.memory_id), '{}') AS lesson_ids, coalesce(array_agg(u.helped), '{}') AS helped,
    coalesce(array_agg(u.hurt), '{}') AS hurt
FROM agent_memories m JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND (u.helped > 0 OR u.hurt > 0)
"""
_THEN = """(SELECT l.id, l.helped, l.hurt
    FROM memory_snapshots s, LATERAL unnest(s.lesson_ids, s.helped, s.hurt) AS l(id, helped, hurt)
    WHERE s.namespace = $1 AND s.agent_id = $2 AND s.name = $3)"""
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
UPDATE memory_index v SET outcome = {OUTCOME} FROM memory_use u
WHERE v.namespace = $1 AND v.agent_id = $2 AND v.memory_id = ANY($3::uuid[])
    AND u.namespace = v.namespace AND u.memory_id = v.memory_id
"""
_COPY = f"""
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed, helped, hurt)
SELECT $1, t.new_id, coalesce(u.access_count, 0), u.last_accessed, coalesce(l.helped, 0), coalesce(l.hurt, 0)
FROM unnest($4::uuid[], $5::uuid[]) AS t(old_id, new_id)
LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = t.old_id
LEFT JOIN {_THEN} l ON l.id = t.old_id
WHERE u.memory_id IS NOT NULL OR l.id IS NOT NULL
"""


async def put_back(connection: Any, namespace: str, agent: str, name: str) -> None:
    """The agent's memories have helped as much as the snapshot kept. The caller is alone with the agent's memories."""
    async for rows in pages(connection, _OTHERWISE, namespace, agent, name):
        ids, helped, hurt = ([row[column] for row in rows] for column in ("memory_id", "helped", "hurt"))
        await connection.execute(_SET, namespace, ids, helped, hurt)
        await connection.execute(_FOLLOW, namespace, agent, ids)


async def copy(
    connection: Any, namespace: str, agent: str, name: str, old: Sequence[UUID], new: Sequence[UUID]
) -> None:
    """The copies have helped as much as their originals had by the snapshot. Called before the copies are written."""
    await connection.execute(_COPY, namespace, agent, name, list(old), list(new))
