"""The episodes that a simulated cluster has opened, those that are open, and those that never end."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from math import inf

from learnloop_api.kinds.rollouts.analysis import EPISODE_SECONDS_BUCKETS
from learnloop_operator.prometheus.queries import short_bounds
from learnloop_operator.rollout.evidence import Openings

BOUNDS = (*EPISODE_SECONDS_BUCKETS, inf)


def ended_at_once(episodes: float) -> Openings:
    """So many episodes that ended as soon as they were opened."""
    return Openings(episodes, 0.0, episodes, episodes, lasted={0.0: episodes, inf: episodes})


class Opened:
    """By arm, in the order of time: a look at an arm costs the logarithm of what it has seen."""

    def __init__(self) -> None:
        self._opened: dict[str, list[datetime]] = defaultdict(list)
        self._ended: dict[tuple[str, float], list[datetime]] = defaultdict(list)
        """When episodes ended that had lasted no longer than a bound."""
        self._running: list[tuple[datetime, int, str, float, datetime]] = []
        self._number = 0

    def open(self, arm: str, now: datetime, ends: datetime | None, value: float) -> None:
        """An episode begins; with `ends` None it never ends."""
        self._opened[arm].append(now)
        self._number += 1
        if ends is not None:
            heappush(self._running, (ends, self._number, arm, value, now))

    def ended(self, now: datetime) -> Iterator[tuple[str, float, datetime]]:
        """Arm, return and beginning of every episode that has ended since the last call."""
        while self._running and self._running[0][0] <= now:
            _, _, arm, value, began = heappop(self._running)
            for bound in BOUNDS:
                if (now - began).total_seconds() <= bound:
                    self._ended[arm, bound].append(now)
            yield arm, value, began

    def since(self, arm: str, since: datetime, until: datetime, deadline: int) -> Openings:
        """The counts of the arm's servers after `since` and not after `until`."""

        def between(times: list[datetime], first: datetime, last: datetime) -> float:
            return float(max(0, bisect_right(times, last) - bisect_right(times, first)))

        def young(bound: float) -> float:
            return between(self._ended[arm, bound], until - timedelta(seconds=int(deadline - bound)), until)

        lasted = {bound: between(self._ended[arm, bound], since, until) for bound in BOUNDS}
        due = between(self._opened[arm], since, until - timedelta(seconds=deadline))
        return Openings(
            opened=between(self._opened[arm], since, until),
            due=due,
            closed=lasted[inf],
            in_time=lasted[next(bound for bound in BOUNDS if bound >= deadline)],
            young=max(map(young, short_bounds(deadline)), default=0.0) if due else 0.0,
            lasted=lasted,
        )
