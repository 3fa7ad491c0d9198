"""The warehouse's tables: one on a server that stands alone; on each server of a cluster its part, and a view of all.

ClickHouse has no unique keys. `ReplacingMergeTree(version)` keeps, of rows with the same sorting key, the one with the
highest version, and `FINAL` reads as if that had happened already: a batch sent twice, or an episode sent again with
its corrected reward, is one episode. API: https://clickhouse.com/docs/engines/table-engines/mergetree-family/replacingmergetree

In a cluster every version of an episode must lie on the same shard: what is not there replaces nothing. So the shard
follows from the namespace and the episode's name. Replicas agree by Keeper; the path of each table there is the one
the servers are configured for (`default_replica_path`).
"""

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
