"""Deletes one person's or one agent's rows, with what was made out of them, within the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from learnloop_api import names
from learnloop_dataplane.lifecycle.distillation import MAX_PEOPLE, MAX_SOURCES
from learnloop_dataplane.privacy import bury

SECONDS = 300.0  # a large agent is scanned more than once
_OF_USER, _OF_AGENT = "labels ->> 'user_id' = $2", "agent_id = $2"
# Locked first: work that rewards one of them or makes a memory of it has then finished, and what follows sees it.
_EPISODES = """
SELECT trajectory_id, agent_id, episode_id, retrieval_ids FROM trajectories WHERE namespace = $1 AND {whose}
ORDER BY seq FOR UPDATE
"""
_EPISODES_OF = f"SELECT trajectory_id, agent_id, episode_id FROM trajectories WHERE namespace = $1 AND {_OF_USER}"
# The episodes may be gone by age; the memory itself names its people then. One that names a thousand may have had more.
_OF_PERSON = """
SELECT id, agent_id FROM agent_memories
WHERE namespace = $1 AND (origin = ANY($2::text[]) OR session_id = ANY($3::text[]) OR provenance ->> 'user' = $4
    OR provenance -> 'people' ? $4 OR jsonb_array_length(CASE jsonb_typeof(provenance -> 'people')
        WHEN 'array' THEN provenance -> 'people' ELSE '[]' END) >= $5)
"""
_OWNED = "SELECT id, agent_id FROM agent_memories WHERE namespace = $1 AND agent_id = $2"
# Made out of erased ones by consolidation. One that names a hundred sources may have had more.
_MADE_OF = """
SELECT DISTINCT m.id FROM agent_memories m
CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(m.provenance -> 'from')
    WHEN 'array' THEN m.provenance -> 'from' || '[""]' ELSE '[""]' END) AS named
WHERE m.namespace = $1 AND m.provenance IS NOT NULL AND m.id <> ALL($2::uuid[]) AND (
    named = ANY($3::text[]) OR (m.source = 'consolidation' AND m.agent_id = ANY($4::text[])
        AND jsonb_array_length(CASE jsonb_typeof(m.provenance -> 'from')
            WHEN 'array' THEN m.provenance -> 'from' ELSE '[]' END) >= $5))
"""
# Where data of a person or an agent lies: table, condition, and which of the values in `erase` its parameters are. In
# this order: memories first.
_LIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("agent_memories", "id = ANY($2::uuid[])", ("memories",)),
    ("recall_log", "(retrieval_id = ANY($2::uuid[]) OR memory_ids && $3::uuid[])", ("recalls", "memories")),
    # Whatever compares answers of the person's conversations, too.
    ("preferences", "(user_hash = $2 OR sessions && $3::text[])", ("user", "sessions")),
    ("reward_history", "trajectory_id = ANY($2::text[])", ("episodes",)),
    (
        "event_outbox",
        "starts_with(subject, $2) AND (payload::jsonb ->> 'trajectory_id' = ANY($3::text[])"
        " OR payload::jsonb ->> 'agent' = $4)",
        ("reward_events", "episodes", "agent"),
    ),
    ("training_transitions", "trajectory_id = ANY($2::text[])", ("episodes",)),
    ("trajectories", "trajectory_id = ANY($2::text[])", ("episodes",)),
)
_AGENTS_OWN = (
    "recall_log",
    "recall_rewards",
    "memory_words",
    "memory_word_counts",
    "memory_consolidations",
    "reward_statistics",
    "reward_history",
    "task_credits",
    "preferences",
)
_OPINIONS = """
DELETE FROM user_feedback WHERE namespace = $1 AND (user_hash = $2 OR trajectory_id = ANY($3::text[]))
RETURNING trajectory_id
"""
# The warehouse has what retention took from here long ago, so it erases by the attribute and not by these ids.
_WAREHOUSE = "INSERT INTO warehouse_erasures (namespace, attribute, value) VALUES ($1, $2, $3)"
_RESET = """
UPDATE agents SET since = clock_timestamp(), trajectories = 0, rewarded = 0, last_trajectory_at = NULL,
    first_episodes = 0, first_return_sum = 0, training_request = NULL, training_wish = NULL,
    training_request_ids = '{}'
    WHERE namespace = $1 AND name = $2
"""


@dataclass(frozen=True)
class Scope:
    """A person by hash (`user:…`) or an agent by name."""

    user: str | None = None
    agent: str | None = None

    @classmethod
    def of(cls, subject: str) -> "Scope":
        kind, _, name = subject.partition("/")
        return cls(user=name) if kind == "user" else cls(agent=name)

    @property
    def subject(self) -> str:
        return f"user/{self.user}" if self.user is not None else f"agent/{self.agent}"

    @property
    def attribute(self) -> tuple[str, str]:
        """As the warehouse's table has it: column and value."""
        return ("user_hash", self.user) if self.user is not None else ("agent_id", self.agent or "")


@dataclass
class Erased:
    """Rows deleted by table, and the episodes of others whose feedback changed."""

    rows: dict[str, int] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)


async def erase(connection: Any, namespace: str, scope: Scope) -> Erased:
    """Deletes everything of the scope and remembers which episodes those were. Again, it finds nothing more.

    What remains: sums over many episodes (normalisation, usual rewards, an agent's totals after one person went) and
    models that were trained before.

    Raises:
        asyncpg.PostgresError: nothing was erased.
    """
    whose = _OF_USER if scope.user is not None else _OF_AGENT
    episodes = await connection.fetch(
        _EPISODES.format(whose=whose), namespace, scope.user or scope.agent, timeout=SECONDS
    )
    ids = [row["trajectory_id"] for row in episodes]
    await bury(connection, namespace, scope.subject, ids)
    erased = Erased()
    opinions = await connection.fetch(_OPINIONS, namespace, scope.user, ids, timeout=SECONDS)
    erased.rows["user_feedback"] = len(opinions)
    erased.touched = {row["trajectory_id"] for row in opinions} - set(ids)
    values = {
        "user": scope.user,
        "agent": scope.agent,
        "episodes": ids,
        "sessions": [row["episode_id"] for row in episodes],
        "memories": await _memories(connection, namespace, scope, episodes),
        "recalls": [uuid for row in episodes for text in orjson.loads(row["retrieval_ids"]) if (uuid := _uuid(text))],
        "reward_events": f"{names.SUBJECT_REWARD}.{namespace}.",
    }
    for table, condition, named in _LIES:
        await _delete(connection, erased, table, condition, namespace, *(values[name] for name in named))
    await connection.execute(_WAREHOUSE, namespace, *scope.attribute)
    if scope.agent is not None:
        for table in _AGENTS_OWN:
            await _delete(connection, erased, table, "agent_id = $2", namespace, scope.agent)
        await connection.execute(_RESET, namespace, scope.agent)
    return erased


async def _delete(connection: Any, erased: Erased, table: str, condition: str, *arguments: Any) -> None:
    statement = f"DELETE FROM {table} WHERE namespace = $1 AND {condition}"
    count = int((await connection.execute(statement, *arguments, timeout=SECONDS)).split()[-1])
    erased.rows[table] = erased.rows.get(table, 0) + count


async def of_person(connection: Any, namespace: str, user: str) -> list[UUID]:
    """Ids of the memories that an erasure of this person (a pseudonym) would take now.

    Raises:
        asyncpg.PostgresError: nothing is known.
    """
    episodes = await connection.fetch(_EPISODES_OF, namespace, user, timeout=SECONDS)
    return await _memories(connection, namespace, Scope(user=user), episodes)


async def _memories(connection: Any, namespace: str, scope: Scope, episodes: Sequence[Any]) -> list[UUID]:
    """Ids of the memories of these episodes or this agent, and of all that was made out of them, however often."""
    if scope.agent is not None:
        rows = await connection.fetch(_OWNED, namespace, scope.agent, timeout=SECONDS)
    else:
        origins = [f"trajectory/{row['trajectory_id']}" for row in episodes]
        sessions = [row["episode_id"] for row in episodes]
        rows = await connection.fetch(_OF_PERSON, namespace, origins, sessions, scope.user, MAX_PEOPLE, timeout=SECONDS)
    agents = sorted({row["agent_id"] for row in (*episodes, *rows)})
    memories = [row["id"] for row in rows]
    last = memories
    while last or (agents and last is memories):
        sources = [str(identity) for identity in last]
        rows = await connection.fetch(_MADE_OF, namespace, memories, sources, agents, MAX_SOURCES, timeout=SECONDS)
        last = [row["id"] for row in rows]
        memories = memories + last
    return memories


def _uuid(text: str) -> UUID | None:
    """None for an id that no recall of this service can have."""
    try:
        return UUID(text)
    except ValueError:
        return None


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
FROM one WHERE m.namespace = $1 AND m.id = one.id
"""


async def name_people(connection: Any, namespace: str, episodes: Sequence[Any]) -> None:
    """Writes each episode's person onto the memories that came from it or from its session and name no person, within
    the transaction that deletes the episodes.

    Args:
        episodes: rows with trajectory_id, episode_id and person, a pseudonym.

    Raises:
        asyncpg.PostgresError: nothing was written.
    """
    if not episodes:
        return
    origins = [f"trajectory/{row['trajectory_id']}" for row in episodes]
    sessions, people = [row["episode_id"] for row in episodes], [row["person"] for row in episodes]
    await connection.execute(_NAME, namespace, origins, sessions, people, timeout=SECONDS)
