"""What feedback taught about an agent's memories, kept with a snapshot: its ranker, and how much each memory helped.

Memories keep both of their times, lessons do not: so a snapshot, otherwise a name for an instant, copies them. Uses
(how often, and when last) are no lessons: they say what to forget, and happened whatever is restored.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from learnloop_memory.memory.ranker import UTILITY

# $1 namespace, $2 agent. '{}' is a ranker that had learned nothing; a snapshot of before lessons were kept has NULL.
NOW = """
SELECT coalesce((SELECT r.state FROM memory_rankers r WHERE r.namespace = $1 AND r.agent_id = $2), '{}') AS ranker,
    coalesce(array_agg(u.memory_id), '{}') AS lesson_ids, coalesce(array_agg(u.helped), '{}') AS helped,
    coalesce(array_agg(u.hurt), '{}') AS hurt
FROM agent_memories m JOIN memory_use u ON u.namespace = m.namespace AND u.memory_id = m.id
WHERE m.namespace = $1 AND m.agent_id = $2 AND (u.helped > 0 OR u.hurt > 0)
"""
_THEN = """
SELECT ranker, lesson_ids, helped, hurt FROM memory_snapshots
WHERE namespace = $1 AND agent_id = $2 AND name = $3 AND ranker IS NOT NULL
"""
# Feedback holds the agent's ranker while it teaches: whoever has the row is alone with the lessons.
_ALONE = "SELECT FROM memory_rankers WHERE namespace = $1 AND agent_id = $2 FOR UPDATE"
_FORGET_RANKER = "DELETE FROM memory_rankers WHERE namespace = $1 AND agent_id = $2"
_SET_RANKER = """
INSERT INTO memory_rankers (namespace, agent_id, state, active)
VALUES ($1, $2, $3, coalesce(($3::jsonb ->> 'active')::bool, false))
ON CONFLICT (namespace, agent_id) DO UPDATE SET state = excluded.state, active = excluded.active, updated_at = now()
"""
# In the order of the ids, as the uses are counted: neither waits for the other in a circle.
_OTHERWISE = """
SELECT u.memory_id, coalesce(l.helped, 0) AS helped, coalesce(l.hurt, 0) AS hurt
FROM memory_use u LEFT JOIN unnest($3::uuid[], $4::float8[], $5::float8[]) AS l(id, helped, hurt) ON l.id = u.memory_id
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
_COPY = """
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed, helped, hurt)
SELECT $1, t.new_id, coalesce(u.access_count, 0), u.last_accessed, coalesce(l.helped, 0), coalesce(l.hurt, 0)
FROM unnest($2::uuid[], $3::uuid[]) AS t(old_id, new_id)
LEFT JOIN memory_use u ON u.namespace = $1 AND u.memory_id = t.old_id
LEFT JOIN unnest($4::uuid[], $5::float8[], $6::float8[]) AS l(id, helped, hurt) ON l.id = t.old_id
WHERE u.memory_id IS NOT NULL OR l.id IS NOT NULL
"""


@dataclass(frozen=True)
class Lessons:
    """The ranker's state as JSON (`{}`: it had learned nothing), and for each of `ids` what it helped and hurt."""

    ranker: str
    ids: list[UUID]
    helped: list[float]
    hurt: list[float]

    @classmethod
    def of(cls, row: Any) -> "Lessons":
        """From a row of `NOW` or of a snapshot."""
        return cls(row["ranker"], row["lesson_ids"], row["helped"], row["hurt"])


async def alone(connection: Any, namespace: str, agent: str) -> None:
    """Until the transaction ends nobody teaches this agent. To be asked for before its memories are touched, in the
    order in which feedback takes both."""
    await connection.execute(_ALONE, namespace, agent)


async def then(connection: Any, namespace: str, agent: str, name: str) -> Lessons | None:
    """What a snapshot kept; None for one that was taken before snapshots kept lessons."""
    row = await connection.fetchrow(_THEN, namespace, agent, name)
    return None if row is None else Lessons.of(row)


async def put_back(connection: Any, namespace: str, agent: str, lessons: Lessons) -> None:
    """The agent has learned this and nothing else."""
    await _set_ranker(connection, namespace, agent, lessons.ranker)
    rows = await connection.fetch(_OTHERWISE, namespace, agent, lessons.ids, lessons.helped, lessons.hurt)
    ids, helped, hurt = ([row[column] for row in rows] for column in ("memory_id", "helped", "hurt"))
    await connection.execute(_SET, namespace, ids, helped, hurt)
    await connection.execute(_FOLLOW, namespace, agent, ids)


async def hand_on(
    connection: Any, namespace: str, agent: str, lessons: Lessons | None, into: str, copies: dict[UUID, UUID]
) -> None:
    """Another agent has learned this of its copies (old id to new); None: what the first has learned by now."""
    known = lessons or Lessons.of(await connection.fetchrow(NOW, namespace, agent))
    await _set_ranker(connection, namespace, into, known.ranker)
    old, new = list(copies), list(copies.values())
    await connection.execute(_COPY, namespace, old, new, known.ids, known.helped, known.hurt)


async def _set_ranker(connection: Any, namespace: str, agent: str, state: str) -> None:
    if state == "{}":
        await connection.execute(_FORGET_RANKER, namespace, agent)
    else:
        await connection.execute(_SET_RANKER, namespace, agent, state)
