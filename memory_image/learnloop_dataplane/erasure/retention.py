"""Retention: deletes what is older than the retention time, in small transactions that block no writer."""

from typing import Any

from learnloop_dataplane.audit.chain import note, note_memories
from learnloop_dataplane.erasure.erased_rows import name_people
from learnloop_dataplane.postgres.database import Database

BATCH = 500
MAX_EPISODE_MEMORIES = 5000
EPISODES = "trajectories"
# Time column and condition by table; $1 is the namespace.
_OLD = {
    "reward_history": ("created_at", "namespace = $1"),
    "agent_memories": ("created_at", "namespace = $1 AND source = 'episode' AND NOT pinned"),
    "recall_log": ("created_at", "namespace = $1"),
    "event_outbox": ("created_at", "namespace = $1 AND published_at IS NOT NULL"),
    "user_feedback": ("given_at", "namespace = $1"),
    "preferences": ("given_at", "namespace = $1"),
}
# Without a warehouse nothing is left that could carry out its erasures.
_WITHOUT_WAREHOUSE = _OLD | {"warehouse_erasures": ("requested_at", "namespace = $1")}
_DELETE_OLD = """
DELETE FROM {table} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {table} WHERE {scope} AND {time} < now() - make_interval(days => $2::int)
    ORDER BY {time} LIMIT $3))
"""
# One that is being erased or shipped waits; with a warehouse episodes stay until they are there ($3).
_OLD_EPISODES = """
SELECT trajectory_id, episode_id, labels ->> 'user_id' AS person FROM trajectories
WHERE namespace = $1 AND received_at < now() - make_interval(days => $2::int) AND (warehoused OR NOT $3)
ORDER BY received_at LIMIT $4 FOR UPDATE SKIP LOCKED
"""
_DELETE_EPISODES = "DELETE FROM trajectories WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"
_TRIM_EPISODES = """
DELETE FROM agent_memories m WHERE namespace = $1 AND agent_id = $2 AND source = 'episode' AND NOT pinned
    AND created_at < (SELECT created_at FROM agent_memories WHERE namespace = $1 AND agent_id = $2
        AND source = 'episode' ORDER BY created_at DESC OFFSET $3 LIMIT 1) RETURNING id
"""
# Recalls are counted, and their outcomes noted, a moment after: a memory may be gone by then.
_USE_OF_NONE = """
DELETE FROM memory_use u WHERE u.namespace = $1
AND NOT EXISTS (SELECT 1 FROM agent_memories m WHERE m.namespace = u.namespace AND m.id = u.memory_id)
"""


class Retention:
    """Runs over all namespaces.

    Args:
        days: how long trajectories, rewards, episode memories, recall logs, published events, feedback, preferences and
            ended memories are kept.
        warehouse: there is one: an episode stays until it is there, however old.
    """

    def __init__(self, db: Database, days: int, *, warehouse: bool = False) -> None:
        self._db = db
        self._days = days
        self._warehouse = warehouse

    async def run(self) -> int:
        """Deletes everything that is due and returns how many rows by age that were.

        Raises:
            Unavailable: the rest is deleted next time.
        """
        total = 0
        old = _OLD if self._warehouse else _WITHOUT_WAREHOUSE
        for namespace in await self._db.namespaces():
            total += await self._delete_old(namespace, EPISODES)
            for table, (time, scope) in old.items():
                total += await self._delete_old(
                    namespace, table, _DELETE_OLD.format(table=table, time=time, scope=scope)
                )
            ended = "namespace = $1 AND ends_at < 'infinity'"
            statement = _DELETE_OLD.format(table="agent_memories", time="ends_at", scope=ended)
            total += await self._delete_old(namespace, "ended memories", statement)
            await self._trim(namespace)
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_USE_OF_NONE, namespace)
        return total

    async def _delete_old(self, namespace: str, what: str, statement: str = "") -> int:
        total = 0
        while True:
            async with self._db.tenant(namespace) as connection:
                if what == EPISODES:
                    count = await self._delete_episodes(connection, namespace)
                else:
                    count = int((await connection.execute(statement, namespace, self._days, BATCH)).split()[-1])
                if count:
                    await note(connection, namespace, "retention.deleted", what, {"count": count, "days": self._days})
            total += count
            if count < BATCH:
                return total

    async def _delete_episodes(self, connection: Any, namespace: str) -> int:
        """After their people were written onto the memories that outlive them."""
        episodes = await connection.fetch(_OLD_EPISODES, namespace, self._days, self._warehouse, BATCH)
        await name_people(connection, namespace, [row for row in episodes if row["person"]])
        await connection.execute(_DELETE_EPISODES, namespace, [row["trajectory_id"] for row in episodes])
        return len(episodes)

    async def _trim(self, namespace: str) -> None:
        """Keeps each agent's newest five thousand memories of episodes."""
        async with self._db.tenant(namespace) as connection:
            agents = await connection.fetch("SELECT name FROM agents WHERE namespace = $1", namespace)
        for agent in agents:
            async with self._db.tenant(namespace) as connection:
                gone = await connection.fetch(_TRIM_EPISODES, namespace, agent["name"], MAX_EPISODE_MEMORIES)
                ids = sorted(row["id"] for row in gone)
                await note_memories(connection, namespace, "retention.trimmed", agent["name"], ids)
