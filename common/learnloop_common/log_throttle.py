import time
from collections.abc import Callable

REPEAT_SECONDS, MOST_SUBJECTS = 10.0, 10_000


class LogThrottle:
    """Lets one line in ten seconds of the same subject through: strangers cause as many as they like."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[tuple[object, ...], tuple[float, int]] = {}

    def due(self, *subject: object) -> str | None:
        """The end of the line, which counts those left out before it; None: leave this one out."""
        now = self._clock()
        last, left_out = self._lines.pop(subject, (now - REPEAT_SECONDS, 0))
        due = now - last >= REPEAT_SECONDS
        self._lines[subject] = (now, 0) if due else (last, left_out + 1)
        if len(self._lines) > MOST_SUBJECTS:
            del self._lines[next(iter(self._lines))]
        if not due:
            return None
        return f" ({left_out} more like it before)" if left_out else ""
