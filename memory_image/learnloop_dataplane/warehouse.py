"""The warehouse: one table of whole episodes in ClickHouse, and how they get there from PostgreSQL.

ClickHouse has no unique keys. `ReplacingMergeTree(version)` keeps, of rows with the same sorting key, the one with the
highest version, and `FINAL` reads as if that had happened already: a batch sent twice, or an episode sent again with
its corrected reward, is one episode. API: https://clickhouse.com/docs/engines/table-engines/mergetree-family/replacingmergetree

An episode waits (`trajectories.warehoused` is false) until it has its reward, or for a minute without a reward. Its
row stays locked while it travels. So an erasure, which deletes the row, comes before or after. Before, nothing is sent.
After, it deletes what was sent: it lies in `warehouse_erasures` since the same transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from learnloop_api.wire.trajectory import OPTED_IN, EpisodeSelection
from learnloop_dataplane import config, errors
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import STEPS_OF, Database

TABLE = "learnloop_trajectories"
_COLUMNS = {
    "namespace": "LowCardinality(String)",
    "trajectory_id": "String",
    "seq": "UInt64",
    "agent_id": "LowCardinality(String)",
    "task": "String",
    "episode_id": "String",
    "model_deployment": "LowCardinality(Nullable(String))",
    "policy_revision": "LowCardinality(String)",
    "started_at": "DateTime64(6, 'UTC')",
    "ended_at": "DateTime64(6, 'UTC')",
    "received_at": "DateTime64(6, 'UTC')",
    "steps": "UInt32",
    "status": "LowCardinality(String)",
    "episode_return": "Float64",
    "success": "Nullable(Bool)",
    "outcome_values": "String CODEC(ZSTD(3))",
    "retrieval_ids": "String CODEC(ZSTD(3))",
    "labels": "String CODEC(ZSTD(3))",
    "user_hash": "String",
    "reward": "Nullable(Float64)",
    "reward_policy_revision": "LowCardinality(Nullable(String))",
    "components": "String CODEC(ZSTD(3))",
    "log": "String CODEC(ZSTD(3))",
    "last_observation": "String CODEC(ZSTD(3))",
    "version": "UInt64",
}
COLUMNS = tuple(_COLUMNS)
# The order of the key is that of the reads: one agent's episodes by time. `received_at` never changes, so it may be
# part of what tells two episodes apart. Partitions by month: each one costs open files and merges of its own.
_CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} ({", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())})
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(received_at)
ORDER BY (namespace, agent_id, received_at, trajectory_id)
"""
# ClickHouse answers an insert when the page cache has it. PostgreSQL deletes acknowledged episodes, so a server that
# loses power must not: with these it answers when the disk has the data and the directory that names it.
_DURABLY = f"ALTER TABLE {TABLE} MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1"
_KEEP = f"ALTER TABLE {TABLE} MODIFY TTL toDateTime(received_at) + toIntervalDay({{days}})"

log = logging.getLogger(__name__)
for _library in (
    "urllib3.connectionpool",
    "clickhouse_connect",
):  # its warnings are raised too
    logging.getLogger(_library).setLevel(logging.ERROR)
T = TypeVar("T")

_PAGE = f"""
SELECT {{columns}} FROM {TABLE} FINAL
WHERE namespace = {{namespace:String}} {{whose}} {{only}}
    AND received_at >= {{since:DateTime64(6, 'UTC')}}
    AND (received_at, trajectory_id) < ({{until:DateTime64(6, 'UTC')}}, {{before:String}})
ORDER BY received_at DESC, trajectory_id DESC LIMIT {{size:UInt32}}
"""
_ERASE = f"DELETE FROM {TABLE} WHERE namespace = {{namespace:String}} AND {{column}} = {{value:String}}"
ERASABLE = ("user_hash", "agent_id", "trajectory_id")


class ClickHouse:
    """One server, one statement at a time: nothing that is written here waits for an answer.

    Args:
        dsn: `clickhouse://user:password@host:8123/database`, `?secure=true` for TLS.
        days: how long an episode is kept.
        timeout: seconds that a statement may take.

    Raises:
        ValueError: invalid `dsn`.
    """

    def __init__(self, dsn: str, *, days: int, timeout: float = 10.0) -> None:
        self._connection: dict[str, Any] = dict(config.warehouse_connection(dsn))
        self._days = days
        self._timeout = timeout
        self._client: Any = None
        self._turn = asyncio.Lock()

    async def insert(self, rows: Sequence[Sequence[Any]]) -> None:
        """Writes rows of `COLUMNS`; returns when the server has them durably.

        Raises:
            Unavailable: some or none may have been written; send the same rows again.
        """
        await self._run(lambda client: client.insert(TABLE, rows, column_names=list(COLUMNS)))

    async def page(
        self,
        namespace: str,
        columns: Sequence[str],
        *,
        agents: Sequence[str] | None,
        since: datetime,
        until: datetime,
        before: str,
        size: int,
        only: EpisodeSelection | None = None,
    ) -> list[Mapping[str, Any]]:
        """At most `size` episodes with (received_at, trajectory_id) below (`until`, `before`), newest first.

        Args:
            columns: of `COLUMNS`; JSON ones come as text.
            agents: None: all.
            only: further conditions; its times are ignored.

        Raises:
            Unavailable: the server does not answer.
            ValueError: unknown column.
        """
        if unknown := set(columns) - set(COLUMNS):
            raise ValueError(f"columns={sorted(unknown)}: the warehouse has {', '.join(COLUMNS)}")
        whose = "" if agents is None else "AND agent_id IN {agents:Array(String)}"
        conditions, wanted = _conditions(only) if only is not None else ([], {})
        query = _PAGE.replace("{columns}", ", ".join(columns)).replace("{whose}", whose)
        query = query.replace("{only}", " ".join(f"AND {condition}" for condition in conditions))
        given = {"namespace": namespace, "since": since, "until": until, "before": before, "size": size, **wanted}
        if agents is not None:
            given["agents"] = list(agents)
        answer = await self._run(lambda client: client.query(query, parameters=given))
        return list(answer.named_results())

    async def erase(self, namespace: str, column: str, value: str, until: datetime | None = None) -> None:
        """Deletes every episode of a user, of an agent, or one by id, received until then (None: ever).

        Returns when no query finds it any more.

        Raises:
            Unavailable: ask again.
            ValueError: `column` is not in `ERASABLE`.
        """
        if column not in ERASABLE:
            raise ValueError(f"column={column}: one of {', '.join(ERASABLE)}")
        statement = _ERASE.replace("{column}", column)
        given: dict[str, Any] = {"namespace": namespace, "value": value}
        if until is not None:
            statement += " AND received_at <= {until:DateTime64(6, 'UTC')}"
            given["until"] = until.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        await self._run(lambda client: client.command(statement, parameters=given))

    async def close(self) -> None:
        async with self._turn:
            if self._client is not None:
                await asyncio.to_thread(self._client.close)
                self._client = None

    async def _run(self, work: Callable[[Any], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.wait_for(asyncio.to_thread(self._ask, work), self._timeout + 5)
            except TimeoutError as error:
                raise errors.Unavailable("ClickHouse") from error

    def _ask(self, work: Callable[[Any], T]) -> T:
        # Imported here: a quarter of a second and 40 MB that only installations with a warehouse pay.
        from clickhouse_connect.driver.exceptions import Error

        try:
            return work(self._connected())
        except (Error, OSError) as error:
            log.warning("ClickHouse: %s", str(error).splitlines()[0][:300] if str(error) else type(error).__name__)
            raise errors.Unavailable("ClickHouse") from error

    def _connected(self) -> Any:
        """The client; the first call makes the table."""
        import clickhouse_connect

        if self._client is None:
            client = clickhouse_connect.get_client(
                connect_timeout=5,
                send_receive_timeout=self._timeout,
                autogenerate_session_id=False,
                settings={"max_execution_time": max(1, int(self._timeout))},
                client_name="learnloop",
                **self._connection,
            )
            try:
                for statement in (_CREATE, _DURABLY, _KEEP.format(days=self._days)):
                    client.command(statement)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client


def _conditions(only: EpisodeSelection) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions and the values of their parameters."""
    conditions = {
        "task IN {tasks:Array(String)}": ("tasks", only.tasks or None),
        "policy_revision IN {revisions:Array(String)}": ("revisions", only.model_revisions or None),
        "reward >= {least:Float64}": ("least", only.min_reward),
        "reward <= {most:Float64}": ("most", only.max_reward),
        "success = {success:Bool}": ("success", only.success),
        f"JSONExtractString(labels, '{OPTED_IN}') = {{agreed:String}}": ("agreed", "true" if only.opted_in else None),
    }
    given = {condition: named for condition, named in conditions.items() if named[1] is not None}
    return list(given), dict(given.values())


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
SELECT id, attribute, value, requested_at, requested_at < now() - make_interval(secs => $2) AS last
FROM warehouse_erasures WHERE namespace = $1 AND (tried_at IS NULL OR requested_at < now() - make_interval(secs => $2))
ORDER BY id LIMIT $3
"""
_TRIED = "UPDATE warehouse_erasures SET tried_at = now() WHERE namespace = $1 AND id = $2"
_ERASED = "DELETE FROM warehouse_erasures WHERE namespace = $1 AND id = $2"


class Shipper:
    """Ships what waits in one namespace.

    Args:
        unrewarded_seconds: how long an episode waits for a reward before it goes without one.
    """

    def __init__(
        self, db: Database, warehouse: ClickHouse, metrics: Metrics, *, unrewarded_seconds: float = 60.0
    ) -> None:
        self._db, self._warehouse, self._metrics = db, warehouse, metrics
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
        self._metrics.count("warehoused", namespace, by=len(rows))
        return len(rows)

    async def _erase(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            due = await connection.fetch(_ERASURES, namespace, AGAIN_SECONDS, ERASURES)
        for item in due:
            await self._warehouse.erase(namespace, item["attribute"], item["value"], item["requested_at"])
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
