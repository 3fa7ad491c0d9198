"""Before episodes go by age: what still tells of them says by itself, from then on, whose they were.

A pinned memory, one that a snapshot sees, a fork, a note of the same session and what was distilled from them may all
outlive the episode. An erasure or opt-out of its person finds them by `provenance` then, and an export says it, too.
"""

from collections.abc import Sequence
from typing import Any

SECONDS = 120.0
# Once by origin and once by session: each joins by a hash, where one condition with OR would compare all with all.
_NAME = """
WITH episodes AS (SELECT * FROM unnest($2::text[], $3::text[], $4::text[]) AS e(origin, session_id, person)),
told AS (
    SELECT m.id, e.person FROM agent_memories m JOIN episodes e ON e.origin = m.origin
    WHERE m.namespace = $1 AND m.provenance ->> 'user' IS NULL
    UNION
    SELECT m.id, e.person FROM agent_memories m JOIN episodes e ON e.session_id = m.session_id
    WHERE m.namespace = $1 AND m.provenance ->> 'user' IS NULL
), one AS (SELECT id, min(person) AS person FROM told GROUP BY id)
UPDATE agent_memories m SET provenance = coalesce(m.provenance, '{}') || jsonb_build_object('user', one.person)
FROM one WHERE m.namespace = $1 AND m.id = one.id RETURNING m.id::text, one.person
"""
_INHERIT = """
WITH heirs AS (
    SELECT m.id, jsonb_agg(DISTINCT n.person) AS people
    FROM agent_memories m CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(m.provenance -> 'from')
        WHEN 'array' THEN m.provenance -> 'from' ELSE '[]' END) AS source
    JOIN unnest($2::text[], $3::text[]) AS n(id, person) ON n.id = source
    WHERE m.namespace = $1 AND m.source = 'consolidation' GROUP BY m.id
)
UPDATE agent_memories m SET provenance = m.provenance || jsonb_build_object('people', (
    SELECT jsonb_agg(DISTINCT person)
    FROM jsonb_array_elements(coalesce(m.provenance -> 'people', '[]') || heirs.people) AS person))
FROM heirs WHERE m.namespace = $1 AND m.id = heirs.id
"""


async def name_people(connection: Any, namespace: str, episodes: Sequence[Any]) -> None:
    """Writes each episode's person onto the memories that came from it or from its session and name nobody, and onto
    what was distilled from these. Within the transaction that deletes the episodes.

    Args:
        episodes: rows with trajectory_id, episode_id and person, a pseudonym.

    Raises:
        asyncpg.PostgresError: nothing was written.
    """
    if not episodes:
        return
    origins = [f"trajectory/{row['trajectory_id']}" for row in episodes]
    sessions, people = [row["episode_id"] for row in episodes], [row["person"] for row in episodes]
    named = await connection.fetch(_NAME, namespace, origins, sessions, people, timeout=SECONDS)
    if named:
        ids, persons = [row["id"] for row in named], [row["person"] for row in named]
        await connection.execute(_INHERIT, namespace, ids, persons, timeout=SECONDS)
