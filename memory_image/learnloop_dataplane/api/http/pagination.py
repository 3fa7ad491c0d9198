"""Where the next page of a list begins: opaque to callers, and every mark of the documented form is one."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from fastapi import Query

Mark = tuple[datetime, *tuple[str, ...]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANY = "([A-Za-z0-9_.-]|~[2-9A-F][0-9A-F])*"
UUID_KEY = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MICROSECOND = timedelta(microseconds=1)


def page_mark(keys: int, key: str = _ANY) -> Any:
    """The query parameter of a list that is ordered by time and so many keys; it takes what `following` gave.

    Args:
        key: the pattern of a key, escaped.
    """
    form = rf"^[0-9]{{1,16}}(,{key}){{{keys}}}$"
    return Query(max_length=4096, pattern=form, description="`next` of the page before")


def following(time: datetime, *keys: str) -> str:
    """The mark of a row: when it is from, and what else it is ordered by. It goes into a URL as it is."""
    escaped = (quote(key, safe="").replace("~", "%7E").replace("%", "~") for key in keys)
    return ",".join([str((time - _EPOCH) // _MICROSECOND), *escaped])


def begins_after(mark: str | None) -> Mark | None:
    """What `following` was given, of a mark of the form that `page_mark` lets through; None without a mark."""
    if mark is None:
        return None
    time, *keys = mark.split(",")
    return (_EPOCH + int(time) * _MICROSECOND, *(unquote(key.replace("~", "%")) for key in keys))
