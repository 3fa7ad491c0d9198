"""The episodes that a simulated cluster has seen end."""

from bisect import bisect_right
from datetime import datetime

Episode = tuple[datetime, str, float]
"""(when it ended, the revision that played it, its return)"""


class Episodes(list[Episode]):
    """All of them by their ends, and those of each arm: a look at an arm costs what it sees, not all that ever was."""

    def __init__(self) -> None:
        super().__init__()
        self._by_arm: dict[str, tuple[list[datetime], list[float]]] = {}

    def append(self, episode: Episode) -> None:
        """One more has ended, after all before it."""
        super().append(episode)
        at, arm, value = episode
        times, values = self._by_arm.setdefault(arm, ([], []))
        times.append(at)
        values.append(value)

    def clear(self) -> None:
        """Nothing has been played yet."""
        super().clear()
        self._by_arm.clear()

    def returns(self, arm: str, since: datetime, until: datetime) -> list[float]:
        """Returns of the arm's episodes that ended after `since` and not after `until`, the oldest first."""
        times, values = self._by_arm.get(arm, ([], []))
        return values[bisect_right(times, since) : bisect_right(times, until)]
