"""The API server's clock, as who talks to it reads it from the Date of its answers.

Each node's clock may say another time. What a moment in an object means for all of them is what this one clock says.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

DATE_SECONDS = 1.0
"""A Date is cut to whole seconds."""


class ClusterClock:
    """Time by the API server; by this machine until the API server has answered.

    A Date of D says that the clock showed D to D + 1 at some moment between the question and the answer. What several
    answers say holds together, until an answer contradicts: then a clock was set, and the newest alone is believed.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._ticks = wall, ticks
        self._between: tuple[float, float] | None = None
        """How far the API server's clock is ahead of `ticks`, at least and at most."""

    def ask(self) -> float:
        """Moment before a request is sent, for `answered`."""
        return self._ticks()

    def answered(self, sent_at: float, date: str | None) -> None:
        """An answer has come with this Date; one without, or with none that can be read, says nothing."""
        try:
            server = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, OverflowError):
            return
        least, most = server - self._ticks(), server + DATE_SECONDS - sent_at
        if self._between is not None:
            overlap = max(least, self._between[0]), min(most, self._between[1])
            least, most = overlap if overlap[0] <= overlap[1] else (least, most)
        self._between = least, most

    def now(self) -> float:
        """Unix time in seconds."""
        if self._between is None:
            return self._wall()
        return self._ticks() + sum(self._between) / 2

    def moment(self) -> datetime:
        """The same as a time of UTC."""
        return datetime.fromtimestamp(self.now(), UTC)
