"""A table in use becomes the first partition of its successor; nobody waits longer than for a change of a column."""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

from learnloop_dataplane.postgres.migrations.online import create_index
from learnloop_dataplane.postgres.partitions.ranges import FIRST_DAYS

STEPS, FIRST, KEY = "training_transitions", "training_transitions_first", "pk_transitions_first"
COLUMNS = ["namespace", "trajectory_id", "received_at"]
PAGE = 5000
_CHECK = "ck_transitions_first"
_KNOWN = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = :name AND convalidated"
# Steps lie outside the row (TOAST) and stay where they are: what is written again is a hundred bytes.
_FILL = """
WITH page AS (SELECT trajectory_id FROM training_transitions
    WHERE namespace = :namespace AND trajectory_id > :after ORDER BY trajectory_id LIMIT :count),
filled AS (UPDATE training_transitions s SET received_at = t.received_at FROM page p JOIN trajectories t
    ON t.namespace = :namespace AND t.trajectory_id = p.trajectory_id
    WHERE s.namespace = :namespace AND s.trajectory_id = p.trajectory_id AND s.received_at IS NULL)
SELECT max(trajectory_id) FROM page
"""


def add_time() -> None:
    """Gives each row of the steps the time of its episode. Each part passes a second time, too.

    Who writes without the new column, an older replica, gets the moment of writing.
    """
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE training_transitions ADD COLUMN IF NOT EXISTS received_at timestamptz")
        op.execute("ALTER TABLE training_transitions ALTER COLUMN received_at SET DEFAULT clock_timestamp()")
        if _first_end() is not None:
            return
        connection = op.get_bind()
        for (namespace,) in connection.execute(sa.text("SELECT namespace FROM tenants ORDER BY 1")).all():
            connection.execute(sa.text("SELECT set_config('app.namespace', :n, false)"), {"n": namespace})
            _fill(connection, str(namespace))
        op.execute("RESET app.namespace")


def prepare_key() -> datetime:
    """Builds the key beside the writers and proves that every row is older than the moment returned.

    The proof is kept as a constraint, so that to attach the table reads no row.
    """
    create_index(KEY, STEPS, COLUMNS, unique=True)
    with op.get_context().autocommit_block():
        end = _first_end()
        if end is None:
            end = _now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=FIRST_DAYS)
            op.execute(f"ALTER TABLE {STEPS} DROP CONSTRAINT IF EXISTS {_CHECK}")
            condition = f"received_at IS NOT NULL AND received_at < '{end.isoformat()}'"
            op.execute(f"ALTER TABLE {STEPS} ADD CONSTRAINT {_CHECK} CHECK ({condition}) NOT VALID")
            op.execute(f"ALTER TABLE {STEPS} VALIDATE CONSTRAINT {_CHECK}")
    return end


def swap(end: datetime) -> None:
    """Puts the partitioned table in the old one's place, in the revision's transaction."""
    for statement in (
        # In the order of most writers. Where one has the other order, this gives up before PostgreSQL, which looks for
        # deadlocks after a second, would end the writer.
        "SET LOCAL lock_timeout = '500ms'",
        f"LOCK TABLE trajectories, {STEPS} IN ACCESS EXCLUSIVE MODE",
        f"ALTER TABLE {STEPS} DROP CONSTRAINT fk_transitions_trajectory, DROP CONSTRAINT training_transitions_pkey",
        f"ALTER TABLE {STEPS} ALTER COLUMN received_at SET NOT NULL",
        f"ALTER TABLE {STEPS} ADD PRIMARY KEY USING INDEX {KEY}",
        f"ALTER TABLE {STEPS} RENAME TO {FIRST}",
        f"ALTER TABLE {FIRST} RENAME CONSTRAINT {KEY} TO {FIRST}_pkey",
        f"DROP POLICY by_namespace ON {FIRST}",
        f"CREATE TABLE {STEPS} (LIKE {FIRST} INCLUDING DEFAULTS) PARTITION BY RANGE (received_at)",
        f"ALTER TABLE {STEPS} ADD PRIMARY KEY ({', '.join(COLUMNS)})",
        f"ALTER TABLE {STEPS} ATTACH PARTITION {FIRST} FOR VALUES FROM (MINVALUE) TO ('{end.isoformat()}')",
        f"ALTER TABLE {FIRST} DROP CONSTRAINT {_CHECK}",
    ):
        op.execute(statement)


def _fill(connection: Any, namespace: str) -> None:
    after: str | None = ""
    while after is not None:
        values = {"namespace": namespace, "after": after, "count": PAGE}
        after = connection.execute(sa.text(_FILL), values).scalar()


def _first_end() -> datetime | None:
    """As far as rows are known to reach, by a try that was cut off lately."""
    op.execute("SET TimeZone = 'UTC'")
    known = op.get_bind().execute(sa.text(_KNOWN), {"name": _CHECK}).scalar()
    op.execute("RESET TimeZone")
    if known is None:
        return None
    end = datetime.fromisoformat(known.rsplit("'", 2)[1]).astimezone(UTC)
    return end if end > _now() + timedelta(days=1) else None


def _now() -> datetime:
    """The database's, which stamps the rows: this process's clock may be wrong."""
    moment: datetime = op.get_bind().execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    return moment.astimezone(UTC)
