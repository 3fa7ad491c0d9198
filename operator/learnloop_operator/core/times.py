"""Times: RFC 3339 in a status, durations for people, and the seconds until the next look."""

import math
from bisect import bisect_left
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from learnloop_operator.core.plan import KubeObject, parse_time, rfc3339 as stamp

__all__ = ["parse", "parse_time", "seconds_since", "stamp"]


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


MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
ROUND = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(MINUTE * count for count in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(HOUR * count for count in (1, 2, 3, 6, 12)),
    *(DAY * count for count in (1, 2, 3, 7, 14, 30, 90, 365)),
)
"""Seconds that people say when they mean about so long."""
_BETWEEN = tuple(math.sqrt(lower * upper) for lower, upper in pairwise(ROUND))
"""The bounds between two units: as far from one as from the next, by ratio."""


def rough(seconds: float) -> float:
    """The nearest of the round durations, by ratio."""
    return ROUND[bisect_left(_BETWEEN, seconds)]


def duration(seconds: float) -> str:
    """Format with at most two units, e.g. 45s, 1m20s, 2h05m, 3d04h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, seconds_left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{seconds_left:02d}s"
    hours, minutes_left = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes_left:02d}m"
    days, hours_left = divmod(hours, 24)
    return f"{days}d{hours_left:02d}h"


SOONEST, LATEST = 5.0, 60.0
SHARE = 0.1
"""Share of the time that it has waited already. The operator learns of the end at most that share too late."""


def ever_later(seconds: float, soonest: float, latest: float) -> float:
    """Seconds until the next look at what has not changed for `seconds`."""
    return min(latest, max(soonest, SHARE * seconds))


def next_look(since: str | None, now: datetime, latest: float = LATEST) -> float:
    """Seconds until the next look at pods that have not been ready since then; None: since just now."""
    return ever_later(seconds_since(since, now), SOONEST, latest)


def unready_since(deployment: KubeObject | None) -> str | None:
    """Time since which a Deployment has had too few ready pods, by its condition Available (apps/v1
    DeploymentCondition), or since it was made where the condition is missing. None where it has enough, or unknown."""
    if deployment is None:
        return None
    result: str | None = deployment["metadata"].get("creationTimestamp")
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            result = condition.get("lastTransitionTime") if condition.get("status") == "False" else None
    return result
