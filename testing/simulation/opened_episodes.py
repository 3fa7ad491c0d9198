"""The episodes that a simulated cluster has opened, those that are open, and those that never end."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush

from learnloop_operator.core.rollout.evidence.arm_evidence import Openings


class Opened:
    """By arm, in the order of time: a look at an arm costs the logarithm of what it has seen."""

    def __init__(self) -> None:
        self._opened: dict[str, list[datetime]] = defaultdict(list)
        self._closed: dict[str, list[datetime]] = defaultdict(list)
        self._in_time: dict[str, list[datetime]] = defaultdict(list)
        self._running: list[tuple[datetime, int, str, float, datetime]] = []
        self._number = 0
        self.deadline = timedelta(seconds=600)

    def open(self, arm: str, now: datetime, ends: datetime | None, value: float) -> None:
        """An episode begins; with `ends` None it never ends."""
        self._opened[arm].append(now)
        self._number += 1
        if ends is not None:
            heappush(self._running, (ends, self._number, arm, value, now))

    def ended(self, now: datetime) -> Iterator[tuple[str, float]]:
        """Arm and return of every episode that has ended since the last call."""
        while self._running and self._running[0][0] <= now:
            _, _, arm, value, began = heappop(self._running)
            self._closed[arm].append(now)
            if now - began <= self.deadline:
                self._in_time[arm].append(now)
            yield arm, value

    def since(self, arm: str, since: datetime, until: datetime, deadline: int) -> Openings:
        """What the arm's servers have counted after `since` and not after `until`."""
        due = min(until, until - timedelta(seconds=deadline))

        def between(times: list[datetime], last: datetime) -> float:
            return float(max(0, bisect_right(times, last) - bisect_right(times, since)))

        return Openings(
            opened=between(self._opened[arm], until),
            due=between(self._opened[arm], due),
            closed=between(self._closed[arm], until),
            in_time=between(self._in_time[arm], until),
        )
