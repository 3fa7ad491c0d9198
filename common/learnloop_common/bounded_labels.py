"""Label sets that names from outside cannot make endless: agents and their model versions are chosen by users."""

import time
from collections import OrderedDict
from collections.abc import Callable

OTHER = "_other"
MOST_SETS = 1000
IDLE_SECONDS = 3600.0

Labels = tuple[str, ...]


class BoundedLabels:
    """At most `most` label sets. A new one takes the place of the one that was silent longest, if that was an
    hour or more; else its values are added to the set whose labels are all `_other`.

    Args:
        removed: called with each set whose series are to be removed.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        removed: Callable[[Labels], None],
        *,
        most: int = MOST_SETS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._removed, self._most, self._idle, self._clock = removed, most, idle_seconds, clock
        self._used: OrderedDict[Labels, float] = OrderedDict()

    def admit(self, labels: Labels) -> Labels:
        """The labels to use: these, or as many `_other`."""
        now = self._clock()
        if labels not in self._used and len(self._used) >= self._most:
            oldest, since = next(iter(self._used.items()))
            if now - since < self._idle:
                return (OTHER,) * len(labels)
            self.drop(oldest)
        self._used[labels] = now
        self._used.move_to_end(labels)
        return labels

    def knows(self, labels: Labels) -> bool:
        """The label sets with series of their own."""
        return labels in self._used

    def drop(self, labels: Labels) -> None:
        """These series are not told any more."""
        if self._used.pop(labels, None) is not None:
            self._removed(labels)

    def silent(self, seconds: float) -> list[Labels]:
        """The sets without a new value for that long."""
        before = self._clock() - seconds
        return [labels for labels, at in self._used.items() if at <= before]
