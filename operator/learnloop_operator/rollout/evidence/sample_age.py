"""Samples that tell of another time than now: clocks that differ, or pods that are not scraped any more.

What they tell against an arm still counts, for it was seen; they pass no step and let nobody win.
"""

from datetime import datetime, timedelta

from learnloop_operator.core.durations import rough
from learnloop_operator.core.durations import text as duration
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence.arm_evidence import Missing

SKEW = timedelta(seconds=30)
"""Clocks that differ by more cannot say which episode ended in which step."""
STALE = timedelta(seconds=150)
"""Two scrapes at the longest usual interval, a minute, and some."""


def untimely(clock: datetime | None, seen_at: datetime | None, now: datetime, whose: str) -> Missing | None:
    """Why the samples of `whose` arm are of another time; None while they are of now, or nothing is known of it.

    `clock`: Prometheus' own when it answered; `seen_at`: when, by that clock, the arm was last scraped as a whole.
    """
    if clock is not None and abs(clock - now) > SKEW:
        ahead = (clock - now).total_seconds()
        text = (
            f"Prometheus' clock is about {duration(rough(abs(ahead)))} {'ahead of' if ahead > 0 else 'behind'} "
            "the operator's: synchronise the clocks of their nodes"
        )
        return Missing(reasons.CLOCK_SKEW, text)
    if seen_at is None:
        return None
    age = (clock or now) - seen_at
    if age < -SKEW:
        text = f"{whose}'s last sample is about {duration(rough(-age.total_seconds()))} in the future"
        return Missing(reasons.CLOCK_SKEW, text)
    if age > STALE:
        text = f"a pod of {whose} was last scraped about {duration(rough(age.total_seconds()))} ago"
        return Missing(reasons.STALE_SAMPLES, text)
    return None
