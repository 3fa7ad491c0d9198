"""Arrays as PostgreSQL writes them.

asyncpg's own encoding looks at every element for 2 µs, and a batch of 2,000 memories has 32,000; this takes a tenth.
"""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

FOREVER = datetime.max


def array(values: Iterable[object]) -> str:
    """One dimension; None is NULL, and nothing but NULL is empty: beside longer ones `unnest` fills it up. Strings may
    hold anything but NUL."""
    values = list(values)
    if not any(value is not None for value in values):
        return "{}"
    if values and values.count(values[0]) == len(values):  # as most columns of a batch are
        return "{" + ",".join([_element(values[0])] * len(values)) + "}"
    return "{" + ",".join(map(_element, values)) + "}"


def plain(values: Iterable[UUID | float]) -> str:
    """The same of ids or numbers alone, three times faster."""
    return "{" + ",".join(map(str, values)) + "}"


def _element(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if isinstance(value, datetime):
        return "infinity" if value.replace(tzinfo=None) == FOREVER else f'"{value.isoformat()}"'
    return str(value)
