"""From PostgreSQL into the warehouse: every episode at least once, again when its reward changes, then erasures.

An episode waits (`trajectories.warehoused` is false) until it has its reward, or for a minute without a reward. Its
row stays locked while it travels. So an erasure, which deletes the row, comes before or after. Before, nothing is sent.
After, it deletes what was sent: it lies in `warehouse_erasures` since the same transaction.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import STEPS_OF
from learnloop_dataplane.warehouse.clickhouse import ClickHouse

BATCH = 1000  # of 16 kB each: 16 MB in hand
ERASURES = 20  # of one turn: each one rewrites what it deletes from
# Somebody's insert of before the erasure may still arrive after a time-out; no statement lives longer than this.
AGAIN_SECONDS = 60

_WAITING = f"""
SELECT t.namespace, t.trajectory_id, t.seq, t.agent_id, t.task, t.episode_id, t.model_deployment, t.policy_revision,
    t.started_at, t.ended_at, t.received_at, t.steps, t.status, t.episode_return, t.success,
    t.outcome_values::text, t.retrieval_ids::text, t.labels::text, coalesce(t.labels ->> 'user_id', '') AS user_hash,
    t.reward, t.reward_policy_revision,
    coalesce((SELECT h.components::text FROM reward_history h
        WHERE h.namespace = t.namespace AND h.trajectory_id = t.trajectory_id
        ORDER BY (h.reward_policy_revision = t.reward_policy_revision) DESC, h.created_at DESC LIMIT 1
    ), '{{}}') AS components,
    coalesce((SELECT s.steps::text FROM training_transitions s WHERE {STEPS_OF}), '[]') AS log,
    coalesce((SELECT s.last_observation::text FROM training_transitions s WHERE {STEPS_OF}), '') AS last_observation,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS version
FROM trajectories t
WHERE t.namespace = $1 AND NOT t.warehoused
    AND (t.reward IS NOT NULL OR t.received_at < now() - make_interval(secs => $3))
ORDER BY t.seq LIMIT $2 FOR UPDATE OF t SKIP LOCKED
"""
_SHIPPED = "UPDATE trajectories SET warehoused = true WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"
_ERASURES = """
SELECT id, attribute, value, asked_at, asked_at < now() - make_interval(secs => $2) AS last FROM warehouse_erasures
WHERE namespace = $1 AND (tried_at IS NULL OR asked_at < now() - make_interval(secs => $2)) ORDER BY id LIMIT $3
"""
_TRIED = "UPDATE warehouse_erasures SET tried_at = now() WHERE namespace = $1 AND id = $2"
_ERASED = "DELETE FROM warehouse_erasures WHERE namespace = $1 AND id = $2"


class Shipper:
    """Ships what waits in one namespace.

    Args:
        unrewarded_seconds: how long an episode waits for a reward before it goes without one.
        shipped: called with a namespace and how many of its episodes went.
    """

    def __init__(
        self,
        db: Database,
        warehouse: ClickHouse,
        shipped: Callable[[str, int], None],
        *,
        unrewarded_seconds: float = 60.0,
    ) -> None:
        self._db = db
        self._warehouse = warehouse
        self._shipped = shipped
        self._patience = unrewarded_seconds

    async def run(self, namespace: str) -> bool:
        """One turn: a batch, and what is due of erasures. Returns whether more may wait.

        Raises:
            Unavailable: PostgreSQL or the warehouse; what was not acknowledged is sent again.
        """
        shipped = await self._batch(namespace)
        erased = await self._erase(namespace)
        return shipped == BATCH or erased == ERASURES

    async def _batch(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_WAITING, namespace, BATCH, self._patience)
            if not rows:
                return 0
            await send(self._warehouse.insert, [tuple(row) for row in rows])
            await connection.execute(_SHIPPED, namespace, [row["trajectory_id"] for row in rows])
        self._shipped(namespace, len(rows))
        return len(rows)

    async def _erase(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            due = await connection.fetch(_ERASURES, namespace, AGAIN_SECONDS, ERASURES)
        for item in due:
            await self._warehouse.erase(namespace, item["attribute"], item["value"], item["asked_at"])
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_ERASED if item["last"] else _TRIED, namespace, item["id"])
        return len(due)


async def send(insert: Callable[[Sequence[Any]], Awaitable[None]], rows: Sequence[Any]) -> None:
    """One insert for each month: ClickHouse refuses blocks that touch more than 100 partitions."""
    months: dict[tuple[int, int], list[Any]] = {}
    for row in rows:
        months.setdefault((row[10].year, row[10].month), []).append(row)
    for batch in months.values():
        await insert(batch)
