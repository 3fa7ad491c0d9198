"""Where the next page of a list begins: opaque to callers, checked when it comes back."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated

import orjson
from fastapi import Query

from learnloop_memory.errors import Invalid

After = Annotated[str | None, Query(min_length=1, max_length=4096, description="`next` of the page before")]
FIELD = "after"
Mark = tuple[datetime, *tuple[str, ...]]


def following(time: datetime, *keys: str) -> str:
    """The mark of a row: when it is from, and what else it is ordered by."""
    return base64.urlsafe_b64encode(orjson.dumps([time.isoformat(), *keys])).decode().rstrip("=")


def begins_after(mark: str | None, keys: int) -> Mark | None:
    """What `following` was given; None without a mark.

    Raises:
        Invalid: it is no mark of a list that is ordered by so many keys.
    """
    if mark is None:
        return None
    try:
        padded = mark.encode("ascii") + b"=" * (-len(mark) % 4)
        parts = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        time = datetime.fromisoformat(parts[0]).astimezone(UTC)
        if len(parts) != keys + 1 or any(type(p) is not str or "\x00" in p for p in parts):
            raise ValueError("another list's")
    except (binascii.Error, ValueError, TypeError, LookupError, OverflowError):
        raise Invalid("not the `next` of a page before; leave it out to begin again", field=FIELD, value=mark) from None
    return (time, *parts[1:])
