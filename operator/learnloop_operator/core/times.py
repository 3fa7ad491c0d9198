"""Times in a status: written as RFC 3339 with whole seconds, read with distrust."""

from datetime import datetime
from functools import lru_cache

from learnloop_operator.core.snapshot import parse_time
from learnloop_operator.core.snapshot import rfc3339 as stamp

__all__ = ["parse", "seconds_since", "stamp"]


@lru_cache(maxsize=1024)
def parse(text: str | None) -> datetime | None:
    """The moment, or None where `text` is missing or not an RFC 3339 time."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from `text` to `now`, never negative; 0 for a missing time, so that nothing is overdue by mistake."""
    moment = parse(text)
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0
