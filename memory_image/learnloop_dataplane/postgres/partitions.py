"""Which partitions there are to be, and which have had their time: arithmetic without a database."""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

MOST = 60
"""Of them in use at a time. Each statement locks all of a table's, and a server has 6,400 locks by default."""
AHEAD = timedelta(days=14)
"""For so long nobody need make another one."""
FIRST_DAYS = 7
"""How far the first one reaches beyond the day of its making."""
_BOUND = re.compile(r"\((?:MINVALUE|'([^']+)')\) TO \('([^']+)'\)$")


@dataclass(frozen=True, order=True)
class Range:
    """One partition.

    Attributes:
        upper: its first moment no more.
        lower: its first moment; None where it has everything before `upper`.
        name: the table that holds it.
    """

    upper: datetime
    lower: datetime | None
    name: str


def parse(name: str, bound: str) -> Range:
    """What `pg_get_expr` says of a bound, in a session whose zone is UTC.

    Raises:
        ValueError: it is no range of times; the fix is to detach a partition that somebody else attached.
    """
    found = _BOUND.search(bound)
    if found is None:
        raise ValueError(f"partition {name} has the bound {bound!r}, not a range of times: detach it")
    lower, upper = found.groups()
    return Range(_moment(upper), None if lower is None else _moment(lower), name)


def width(retention_days: int) -> timedelta:
    """Of one partition: a day, or of a longer retention a sixtieth in whole days."""
    return timedelta(days=math.ceil(retention_days / MOST))


def missing(table: str, last: datetime, now: datetime, retention_days: int) -> list[Range]:
    """What must follow the partition that ends with `last`, so that there is room until `AHEAD` from now.

    A database that slept for months gets one wide one for that time.
    """
    step, found = width(retention_days), []
    today = datetime(now.year, now.month, now.day, tzinfo=UTC)
    while last < now + max(AHEAD, 2 * step):
        upper = max(last + step, today)
        found.append(Range(upper, last, f"{table}_{last:%Y%m%d}"))
        last = upper
    return found


def due(ranges: list[Range], now: datetime, retention_days: int) -> list[Range]:
    """Those whose last moment is older than the retention, the oldest first."""
    return sorted(one for one in ranges if one.upper <= now - timedelta(days=retention_days))


def by_rows_before(ranges: list[Range], now: datetime, retention_days: int) -> datetime | None:
    """Before which moment rows go one by one, because they lie in the first partition, which has no beginning.

    Nothing else would take them until all of it is due, weeks after their time.
    """
    limit = now - timedelta(days=retention_days)
    first = min(ranges, default=None)
    return limit if first is not None and first.lower is None and limit < first.upper else None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


STEPS_OF = "s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id AND s.received_at = t.received_at"
"""`s` is training_transitions, `t` trajectories. Both are written in one transaction, with one time."""
STEPS_OF_EACH = f"CROSS JOIN LATERAL (SELECT s.* FROM training_transitions s WHERE {STEPS_OF} OFFSET 0) s"
"""The same after `FROM t`, looked up row by row: a page's steps are never joined with all there are."""


log = logging.getLogger(__name__)
STEPS = "training_transitions"
LOCK = 0x6C6F6F71
"""Of replicas one changes partitions at a time; any constant will do that nobody else has."""
LOCK_MILLISECONDS = 250
"""How long a change waits for a table, and with it all who come later."""
TRIES, PAUSE_SECONDS = 20, 0.5
_COMMAND_SECONDS = 30.0

_RANGES = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass($1)
"""
# Whoever asks a partition by its own name gets no row: the tenants' rule stands on the table that it belongs to.
SEAL = "ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
# Made beside the table and attached to it, since to attach stops no reader and no writer.
_MAKE = "CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)"
_ATTACH = "ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{lower}') TO ('{upper}')"


async def make_ahead(dsn: str, retention_days: int, now: datetime | None = None) -> list[str]:
    """Makes the partitions of the next two weeks that are not there yet; returns their names.

    Args:
        dsn: of the tables' owner; the role that the service works under may not change tables.
        now: the database's by default, by which episodes come: a process whose clock is years ahead would make one that
            is never old, and one whose clock is behind none at all.

    Raises:
        asyncpg.PostgresError, OSError, TimeoutError: none was made.
    """
    async with _owner(dsn) as connection:
        moment = now or await connection.fetchval("SELECT now()")
        last = max((one.upper for one in await ranges(connection, STEPS)), default=None)
        if last is None or not missing(STEPS, last, moment, retention_days):
            return []
        made: list[str] = await _briefly(connection, lambda: _make(connection, moment, retention_days))
        return made


async def drop(dsn: str, names: Sequence[str]) -> None:
    """Drops partitions, one after the other, each in a moment; what another replica dropped is passed over.

    Raises:
        asyncpg.PostgresError, OSError, TimeoutError: this one and those behind it are still there.
    """
    if not names:
        return
    async with _owner(dsn) as connection:
        for name in names:
            await _briefly(connection, lambda name=name: connection.execute(f"DROP TABLE IF EXISTS {name}"))
            log.info("partition %s is gone with all its rows", name)


async def ranges(connection: Any, table: str) -> list[Range]:
    """The table's partitions, by any role."""
    await connection.execute("SET LOCAL TimeZone = 'UTC'" if connection.is_in_transaction() else "SET TimeZone = 'UTC'")
    found = await connection.fetch(_RANGES, table)
    # One that another replica drops at this moment is still listed, without a bound.
    return sorted(parse(row["relname"], row["bound"]) for row in found if row["bound"] is not None)


async def _make(connection: Any, now: datetime, retention_days: int) -> list[str]:
    """Looks again: under the lock nobody else makes any."""
    last = max(one.upper for one in await ranges(connection, STEPS))
    made = missing(STEPS, last, now, retention_days)
    for one in made:
        assert one.lower is not None
        await connection.execute(_MAKE.format(name=one.name, table=STEPS))
        await connection.execute(SEAL.format(name=one.name))
        bounds = {"lower": one.lower.isoformat(), "upper": one.upper.isoformat()}
        await connection.execute(_ATTACH.format(name=one.name, table=STEPS, **bounds))
    return [one.name for one in made]


@asynccontextmanager
async def _owner(dsn: str) -> AsyncIterator[Any]:
    settings = {"lock_timeout": f"{LOCK_MILLISECONDS}ms", "application_name": "learnloop-partitions"}
    connection = await asyncpg.connect(dsn, timeout=5, command_timeout=_COMMAND_SECONDS, server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def _briefly(connection: Any, change: Any) -> Any:
    """Tries again where somebody has the table: a change that waits makes all wait who come after it."""
    for tries_left in reversed(range(TRIES)):
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                return await change()
        except asyncpg.LockNotAvailableError:
            if not tries_left:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
