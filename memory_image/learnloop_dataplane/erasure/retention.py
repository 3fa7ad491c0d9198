"""Forgets what is older than the retention time, in small transactions that block nobody.

Steps of episodes go by the partition, and their episodes with them: a day leaves as a whole, when all of it is older.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from learnloop_dataplane.audit.chain import note, note_memories
from learnloop_dataplane.erasure.rows import name_people
from learnloop_dataplane.postgres import partitions
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.memory_absences import away
from learnloop_dataplane.postgres.partitions import Range, by_rows_before, due

BATCH = 500
EPISODES = "trajectories"
MAX_EPISODE_MEMORIES = 5000

# A snapshot sees what was there when it was taken.
_UNSEEN = f"""NOT EXISTS (SELECT 1 FROM memory_snapshots s
    WHERE s.namespace = {{m}}.namespace AND s.agent_id = {{m}}.agent_id AND s.taken_at >= {{m}}.created_at
    AND s.taken_at < coalesce({{m}}.retired_at, {{m}}.ends_at)
    AND NOT {away("{m}.namespace", "{m}.id", "s.taken_at")})"""
# Of what the service wrote itself, all that nobody pinned and no snapshot sees.
_ORDINARY = "source = 'episode' AND NOT pinned AND " + _UNSEEN
# Each statement deletes at most one batch of one namespace; $2 is the number of days or of rows to keep.
_OLD = {
    EPISODES: ("received_at", "namespace = $1"),
    "reward_history": ("created_at", "namespace = $1"),
    "agent_memories": ("created_at", f"namespace = $1 AND {_ORDINARY.format(m='agent_memories')}"),
    "recall_log": ("created_at", "namespace = $1"),
    "event_outbox": ("created_at", "namespace = $1 AND published_at IS NOT NULL"),
    "user_feedback": ("given_at", "namespace = $1"),
    "preferences": ("given_at", "namespace = $1"),
}
# With a warehouse the episodes go when they are there; without one nobody is left who could carry out its erasures.
_WITH_WAREHOUSE = _OLD | {EPISODES: ("received_at", "namespace = $1 AND warehoused")}
_WITHOUT = _OLD | {"warehouse_erasures": ("asked_at", "namespace = $1")}
_DELETE_OLD = """
DELETE FROM {table} WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM {table} WHERE {scope} AND {time} < now() - make_interval(days => $2::int)
    ORDER BY {time} LIMIT 500))
"""
# Episodes go by their ids, after what they told was written down. One that is being erased or shipped waits.
_OLD_EPISODES = """
SELECT trajectory_id, episode_id, labels ->> 'user_id' AS person FROM trajectories
WHERE {scope} AND {time} < $2 ORDER BY {time} LIMIT 500 FOR UPDATE SKIP LOCKED
"""
_HELD = "SELECT EXISTS(SELECT 1 FROM trajectories WHERE namespace = $1 AND NOT warehoused AND received_at < $2)"
_LEFT = "SELECT EXISTS(SELECT 1 FROM trajectories WHERE namespace = $1 AND received_at < $2)"
_STEPS_GO_LATER = "SELECT set_config('app.steps_go_by_partition', 'on', true)"
_DELETE_EPISODES = "DELETE FROM trajectories WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"
_TRIM_EPISODES = f"""
DELETE FROM agent_memories m WHERE namespace = $1 AND agent_id = $2 AND {_ORDINARY.format(m="m")} AND created_at < (
    SELECT created_at FROM agent_memories WHERE namespace = $1 AND agent_id = $2 AND source = 'episode'
    ORDER BY created_at DESC OFFSET $3 LIMIT 1) RETURNING id
"""
_ANSWERED = "DELETE FROM idempotency_keys WHERE namespace = $1 AND claimed_at < now() - interval '1 day'"
# Recalls are counted, and their outcomes noted, a moment after: a memory may be gone by then.
_USE_OF_NONE = """
DELETE FROM memory_use u WHERE u.namespace = $1
AND NOT EXISTS (SELECT 1 FROM agent_memories m WHERE m.namespace = u.namespace AND m.id = u.memory_id)
"""
# What ended long ago goes for good, unless a snapshot still sees it.
_PURGE = f"""
DELETE FROM agent_memories WHERE namespace = $1 AND id = ANY(ARRAY(
    SELECT m.id FROM agent_memories m
    WHERE m.namespace = $1 AND m.ends_at < now() - make_interval(days => $2::int) AND m.ends_at < 'infinity'
        AND {_UNSEEN.format(m="m")}
    ORDER BY m.ends_at LIMIT 500))
"""


class Retention:
    """Runs over all namespaces.

    Args:
        days: how long trajectories, rewards, episode memories, recall logs,
            published events, feedback, preferences and ended memories are kept.
        warehouse: there is one: an episode stays until it is there, however old, and with it the others of its day.
        dsn: of the tables' owner, who drops partitions.
    """

    def __init__(self, db: Database, days: int, *, dsn: str, warehouse: bool = False) -> None:
        self._db = db
        self._days = days
        self._dsn = dsn
        self._warehouse = warehouse
        self._old = _WITH_WAREHOUSE if warehouse else _WITHOUT

    async def run(self, now: datetime | None = None) -> int:
        """Deletes everything that is due and returns how many rows by age that were.

        Args:
            now: by which clock days of episodes are due. By default the database's, which gave episodes their times: a
                process whose clock is ahead would drop days before their time.

        Raises:
            Unavailable: the rest is deleted next time.
            asyncpg.PostgresError, OSError: a partition was in use too long; it is dropped next time.
        """
        total, namespaces = 0, await self._db.namespaces()
        async with self._db.transaction() as connection:
            moment = now or await connection.fetchval("SELECT now()")
            parts = await partitions.ranges(connection, partitions.STEPS)
        one_by_one = by_rows_before(parts, moment, self._days)
        ended = await self._ended(namespaces, due(parts, moment, self._days))
        for namespace in namespaces:
            for table, (time, scope) in self._old.items():
                if table == EPISODES:
                    statement = _OLD_EPISODES.format(time=time, scope=scope)
                    if one_by_one is not None:
                        total += await self._delete_old(namespace, table, statement, one_by_one)
                    if ended:
                        total += await self._delete_old(namespace, table, statement, ended[-1].upper, whole=True)
                    continue
                statement = _DELETE_OLD.format(table=table, time=time, scope=scope)
                total += await self._delete_old(namespace, table, statement, self._days)
            total += await self._delete_old(namespace, "ended memories", _PURGE, self._days)
            await self._trim(namespace)
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_ANSWERED, namespace)
                await connection.execute(_USE_OF_NONE, namespace)
        await self._drop(namespaces, ended)
        return total

    async def _ended(self, namespaces: Sequence[str], parts: Sequence[Range]) -> list[Range]:
        """Those that nobody's episode holds back; behind one that is held all others are held, too."""
        free: list[Range] = []
        for part in parts:
            if self._warehouse and await self._any(namespaces, _HELD, part.upper):
                break
            free.append(part)
        return free

    async def _drop(self, namespaces: Sequence[str], parts: Sequence[Range]) -> None:
        """An episode that was being written to was passed by: its day waits for the next time."""
        names = []
        for part in parts:
            if await self._any(namespaces, _LEFT, part.upper):
                break
            names.append(part.name)
        await partitions.drop(self._dsn, names)

    async def _any(self, namespaces: Sequence[str], question: str, moment: datetime) -> bool:
        for namespace in namespaces:
            async with self._db.tenant(namespace) as connection:
                if await connection.fetchval(question, namespace, moment):
                    return True
        return False

    async def _delete_old(
        self, namespace: str, what: str, statement: str, limit: int | datetime, *, whole: bool = False
    ) -> int:
        """Batch by batch; `whole`: the partition that has the steps is dropped later."""
        total = 0
        while True:
            async with self._db.tenant(namespace) as connection:
                if whole:
                    await connection.execute(_STEPS_GO_LATER)
                count = await self._delete_batch(connection, namespace, what, statement, limit)
                if count:
                    await note(connection, namespace, "retention.deleted", what, {"count": count, "days": self._days})
            total += count
            if count < BATCH:
                return total

    async def _delete_batch(
        self, connection: Any, namespace: str, what: str, statement: str, limit: int | datetime
    ) -> int:
        if what != EPISODES:
            return int((await connection.execute(statement, namespace, limit)).split()[-1])
        episodes = await connection.fetch(statement, namespace, limit)
        await name_people(connection, namespace, [row for row in episodes if row["person"]])
        await connection.execute(_DELETE_EPISODES, namespace, [row["trajectory_id"] for row in episodes])
        return len(episodes)

    async def _trim(self, namespace: str) -> None:
        """Thousands of near-identical episodes are no better a memory than the newest five thousand."""
        async with self._db.tenant(namespace) as connection:
            agents = await connection.fetch("SELECT name FROM agents WHERE namespace = $1", namespace)
        for agent in agents:
            async with self._db.tenant(namespace) as connection:
                gone = await connection.fetch(_TRIM_EPISODES, namespace, agent["name"], MAX_EPISODE_MEMORIES)
                ids = sorted(row["id"] for row in gone)
                await note_memories(connection, namespace, "retention.trimmed", agent["name"], ids)
