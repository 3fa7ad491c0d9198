"""Which partitions there are to be, and which have had their time: arithmetic without a database."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
