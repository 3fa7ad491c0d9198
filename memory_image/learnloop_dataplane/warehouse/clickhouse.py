"""The warehouse's tables: one on a server that stands alone; on each server of a cluster its part, and a view of all.

ClickHouse has no unique keys. `ReplacingMergeTree(version)` keeps, of rows with the same sorting key, the one with the
highest version, and `FINAL` reads as if that had happened already: a batch sent twice, or an episode sent again with
its corrected reward, is one episode. API: https://clickhouse.com/docs/engines/table-engines/mergetree-family/replacingmergetree

In a cluster every version of an episode must lie on the same shard: what is not there replaces nothing. So the shard
follows from the namespace and the episode's name. Replicas agree by Keeper; the path of each table there is the one
the servers are configured for (`default_replica_path`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from learnloop_api.wire.trajectory import OPTED_IN, EpisodeSelection
from learnloop_dataplane.config_values import Addresses
from learnloop_dataplane.errors import Unavailable

TABLE = "learnloop_trajectories"
PART = f"{TABLE}_part"
"""What a server of a cluster holds itself; TABLE then is all of them together."""
COLUMNS = (
    "namespace",
    "trajectory_id",
    "seq",
    "agent_id",
    "task",
    "episode_id",
    "model_deployment",
    "policy_revision",
    "started_at",
    "ended_at",
    "received_at",
    "steps",
    "status",
    "episode_return",
    "success",
    "outcome_values",
    "retrieval_ids",
    "labels",
    "user_hash",
    "reward",
    "reward_policy_revision",
    "components",
    "log",
    "last_observation",
    "version",
)
# The order of the key is that of the reads: one agent's episodes by time. `received_at` never changes, so it may be
# part of what tells two episodes apart. Partitions by month: each one costs open files and merges of its own.
_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    namespace LowCardinality(String),
    trajectory_id String,
    seq UInt64,
    agent_id LowCardinality(String),
    task String,
    episode_id String,
    model_deployment LowCardinality(Nullable(String)),
    policy_revision LowCardinality(String),
    started_at DateTime64(6, 'UTC'),
    ended_at DateTime64(6, 'UTC'),
    received_at DateTime64(6, 'UTC'),
    steps UInt32,
    status LowCardinality(String),
    episode_return Float64,
    success Nullable(Bool),
    outcome_values String CODEC(ZSTD(3)),
    retrieval_ids String CODEC(ZSTD(3)),
    labels String CODEC(ZSTD(3)),
    user_hash String,
    reward Nullable(Float64),
    reward_policy_revision LowCardinality(Nullable(String)),
    components String CODEC(ZSTD(3)),
    log String CODEC(ZSTD(3)),
    last_observation String CODEC(ZSTD(3)),
    version UInt64
) ENGINE = {engine}
PARTITION BY toYYYYMM(received_at)
ORDER BY (namespace, agent_id, received_at, trajectory_id)
"""
# ClickHouse answers an insert when the page cache has it. PostgreSQL forgets what was answered, so a server whose
# machine loses power must not: with these it answers when the disk has the data and the directory that names it.
_DURABLY = "ALTER TABLE {table} MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1"
_KEEP = "ALTER TABLE {table} MODIFY TTL toDateTime(received_at) + toIntervalDay({days})"
_ALL = """
CREATE TABLE IF NOT EXISTS {table} AS {part}
ENGINE = Distributed('{cluster}', {database}, {part}, cityHash64(namespace, trajectory_id))
"""
_MARK = "ALTER TABLE {table} MODIFY COMMENT '{mark}'"


def statements(days: int) -> list[str]:
    """What makes or mends the table of a server that stands alone, in their order; each may be said again."""
    create = _CREATE.format(table=TABLE, engine="ReplacingMergeTree(version)")
    return [create, _DURABLY.format(table=TABLE), _KEEP.format(table=TABLE, days=days)]


def cluster_statements(days: int, cluster: str, database: str) -> list[str]:
    """The same for all servers of a cluster; `database` as SQL has it. The last marks the tables as made."""
    everywhere = f"ON CLUSTER '{cluster}'"
    part, whole = f"{PART} {everywhere}", f"{TABLE} {everywhere}"
    together = _ALL.format(table=whole, part=PART, cluster=cluster, database=literal(database))
    return [
        _CREATE.format(table=part, engine="ReplicatedReplacingMergeTree(version)"),
        _DURABLY.format(table=part),
        _KEEP.format(table=part, days=days),
        together,
        _MARK.format(table=part, mark=mark(days)),
    ]


def mark(days: int) -> str:
    """What a table that these statements have made says of itself; another number where they change."""
    return f"learnloop 1, {days} days"


def literal(text: str) -> str:
    """A string of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


log = logging.getLogger(__name__)
for _library in ("urllib3.connectionpool", "clickhouse_connect"):  # what they warn of is raised too, and told here once
    logging.getLogger(_library).setLevel(logging.ERROR)
T = TypeVar("T")

_PAGE = f"""
SELECT {{columns}} FROM {TABLE} FINAL
WHERE namespace = {{namespace:String}} {{whose}} {{only}}
    AND received_at >= {{since:DateTime64(6, 'UTC')}}
    AND (received_at, trajectory_id) < ({{until:DateTime64(6, 'UTC')}}, {{before:String}})
ORDER BY received_at DESC, trajectory_id DESC LIMIT {{size:UInt32}}
"""
_NAMES = f"""
SELECT seq, trajectory_id FROM {TABLE} FINAL WHERE namespace = {{namespace:String}} AND seq IN {{numbers:Array(UInt64)}}
"""
_ERASE = "DELETE FROM {table} WHERE namespace = {namespace:String} AND {column} = {value:String}"
_MADE = """
SELECT count() = 1 FROM system.tables
WHERE database = currentDatabase() AND name = {part:String} AND comment = {mark:String}
"""
ERASABLE = ("user_hash", "agent_id", "trajectory_id")


class ClickHouse:
    """One server or cluster, one statement at a time: what is written here waits for nobody.

    Args:
        dsn: `clickhouse://user:password@host:8123/database`, `?secure=true` for TLS, several `host:port` with commas
            where they are one cluster.
        days: how long an episode is kept.
        timeout: seconds a statement may take.
        cluster: its name in the servers' `remote_servers`, or a macro of theirs like `{cluster}`; None: one server.

    Raises:
        ValueError: `dsn` is none.
    """

    def __init__(self, dsn: str, *, days: int, timeout: float = 10.0, cluster: str | None = None) -> None:
        self._addresses = Addresses.parse(dsn)
        self._days = days
        self._timeout = timeout
        self._cluster = cluster
        self._clients: dict[int, Any] = {}
        self._turn = 0  # of self._addresses.servers: who answered last
        self._one = asyncio.Lock()

    async def insert(self, rows: Sequence[Sequence[Any]]) -> None:
        """Writes rows of `COLUMNS`; returns when the server, and most replicas of a cluster, have them durably.

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
            agents: only of these; None: of all.
            only: and what else they must meet; its own times are not looked at.

        Raises:
            Unavailable: the server does not answer.
            ValueError: a column that is none.
        """
        if unknown := set(columns) - set(COLUMNS):
            raise ValueError(f"columns={sorted(unknown)}: the warehouse has {', '.join(COLUMNS)}")
        whose = "" if agents is None else "AND agent_id IN {agents:Array(String)}"
        conditions, meant = _conditions(only) if only is not None else ([], {})
        query = _PAGE.replace("{columns}", ", ".join(columns)).replace("{whose}", whose)
        query = query.replace("{only}", " ".join(f"AND {condition}" for condition in conditions))
        given = {"namespace": namespace, "since": since, "until": until, "before": before, "size": size, **meant}
        if agents is not None:
            given["agents"] = list(agents)
        answer = await self._run(lambda client: client.query(query, parameters=given))
        return list(answer.named_results())

    async def names(self, namespace: str, numbers: Sequence[int]) -> dict[int, str]:
        """trajectory_id by `seq`, of those that are here.

        Raises:
            Unavailable: the server does not answer.
        """
        given = {"namespace": namespace, "numbers": list(numbers)}
        answer = await self._run(lambda client: client.query(_NAMES, parameters=given))
        return {row["seq"]: row["trajectory_id"] for row in answer.named_results()}

    async def erase(self, namespace: str, column: str, value: str, until: datetime | None = None) -> None:
        """Deletes every episode of a user, of an agent, or one by id, received until then (None: ever).

        Returns when no query finds it any more: in a cluster, when every replica has deleted it.

        Raises:
            Unavailable: ask again.
            ValueError: `column` is none of `ERASABLE`.
        """
        if column not in ERASABLE:
            raise ValueError(f"column={column}: one of {', '.join(ERASABLE)}")
        # What a cluster's table shows lies elsewhere: rows are deleted where they are.
        where = TABLE if self._cluster is None else f"{PART} ON CLUSTER '{self._cluster}'"
        statement = _ERASE.replace("{table}", where).replace("{column}", column)
        given: dict[str, Any] = {"namespace": namespace, "value": value}
        if until is not None:
            statement += " AND received_at <= {until:DateTime64(6, 'UTC')}"
            given["until"] = until.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        await self._run(lambda client: client.command(statement, parameters=given))

    async def close(self) -> None:
        """Gives the connections back."""
        async with self._one:
            for client in self._clients.values():
                await asyncio.to_thread(client.close)
            self._clients.clear()

    async def _run(self, work: Callable[[Any], T]) -> T:
        patience = (self._timeout + 5) * len(self._addresses.servers)
        async with self._one:
            try:
                return await asyncio.wait_for(asyncio.to_thread(self._somewhere, work), patience)
            except TimeoutError as error:
                raise Unavailable("ClickHouse") from error

    def _somewhere(self, work: Callable[[Any], T]) -> T:
        """At the server that answered last, or at the next one that does: all that is done here may be done twice."""
        # Imported here: a quarter of a second and 40 MB that only those with a warehouse pay.
        from clickhouse_connect.driver.exceptions import Error

        servers, first = self._addresses.servers, self._turn
        why: Exception | None = None
        for number in range(len(servers)):
            turn = (first + number) % len(servers)
            try:
                found = work(self._client(turn))
            except (Error, OSError) as error:
                text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
                log.warning("ClickHouse at %s:%d: %s", *servers[turn], text)
                why = error
            else:
                self._turn = turn
                return found
        raise Unavailable("ClickHouse") from why

    def _client(self, turn: int) -> Any:
        """Connected with this server; its tables are there."""
        import clickhouse_connect

        if turn not in self._clients:
            host, port = self._addresses.servers[turn]
            client = clickhouse_connect.get_client(
                host=host,
                port=port,
                connect_timeout=5,
                send_receive_timeout=self._timeout,
                autogenerate_session_id=False,
                settings=self._settings(),
                client_name="learnloop",
                **self._addresses.login,
            )
            try:
                self._make(client)
            except BaseException:
                client.close()
                raise
            self._clients[turn] = client
        return self._clients[turn]

    def _settings(self) -> dict[str, Any]:
        seconds = max(1, int(self._timeout))
        alone: dict[str, Any] = {"max_execution_time": seconds}
        if self._cluster is None:
            return alone
        # An insert is answered when the shards have it and not when it waits in a queue, and when most of a shard's
        # replicas do: PostgreSQL forgets what was answered, and any one server may be lost after that.
        return alone | {
            "distributed_foreground_insert": 1,
            "insert_quorum": "auto",
            "insert_quorum_timeout": 1000 * seconds,
            "distributed_ddl_task_timeout": seconds,
        }

    def _make(self, client: Any) -> None:
        """In a cluster only where it was not done yet: it takes every server, and one that is away must not matter."""
        if self._cluster is None:
            needed = statements(self._days)
        elif int(client.command(_MADE, parameters={"part": PART, "mark": mark(self._days)})):
            needed = []
        else:
            needed = cluster_statements(self._days, self._cluster, str(client.command("SELECT currentDatabase()")))
        for statement in needed:
            client.command(statement)


def _conditions(only: EpisodeSelection) -> tuple[list[str], dict[str, Any]]:
    """What episodes must meet, and the values of the parameters in it."""
    found = {
        "task IN {tasks:Array(String)}": ("tasks", only.tasks or None),
        "policy_revision IN {revisions:Array(String)}": ("revisions", only.model_revisions or None),
        "reward >= {least:Float64}": ("least", only.min_reward),
        "reward <= {most:Float64}": ("most", only.max_reward),
        "success = {success:Bool}": ("success", only.success),
        f"JSONExtractString(labels, '{OPTED_IN}') = {{agreed:String}}": ("agreed", "true" if only.opted_in else None),
    }
    asked = {condition: named for condition, named in found.items() if named[1] is not None}
    return list(asked), dict(asked.values())
