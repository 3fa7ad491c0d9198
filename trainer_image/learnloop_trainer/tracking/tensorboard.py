"""TensorBoard event files, written by tensorboardX's EventsWriter.

Its SummaryWriter is left aside: it writes from a queue of its own, where an error is not heard and a kill loses more.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Board:
    """One folder of event files. What an earlier attempt wrote beyond the first step here is struck out by readers."""

    name = "TensorBoard"

    def __init__(self, directory: Path) -> None:
        """Nothing is written before the first points."""
        self._directory = directory
        self._writer: Any = None

    def write(self, points: Sequence[tuple[int, float, Mapping[str, float]]]) -> None:
        """Append (step, wall clock, values by name). Raises OSError."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        writer = self._opened(points[0][0])
        for step, at, values in points:
            values_of = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            writer.write_event(Event(wall_time=at, step=step, summary=Summary(value=values_of)))
        writer.flush()

    def _opened(self, step: int) -> Any:
        if self._writer is None:
            from tensorboardX.event_file_writer import EventsWriter  # takes a second to import
            from tensorboardX.proto.event_pb2 import Event, SessionLog

            self._directory.mkdir(parents=True, exist_ok=True)
            own = f".{time.time_ns()}"  # the library's own names are those of the second: a restart would overwrite
            self._writer = EventsWriter(str(self._directory / "events"), own)
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=step, session_log=start))
        return self._writer

    def end(self, ending: str) -> None:
        """Close the file."""
        del ending
        if self._writer is not None:
            self._writer.close()
