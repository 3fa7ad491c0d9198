"""A node's folder of logs, as a container runtime writes it (CRI log format: time, stream, P or F, text)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

LONGEST = 16_384
"""containerd cuts longer lines into parts, marked P, up to the last one, marked F."""


class NodeLogs:
    """Below `folder`, as below /var/log/pods. Each line is a millisecond younger than the one before it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._at = folder, datetime.now(UTC) - timedelta(minutes=1)

    def write(self, pod: str, container: str, *lines: str, stream: str = "stderr") -> None:
        """`pod`: NAMESPACE_NAME of it."""
        file = self.folder / f"{pod}_3c1f" / container / "0.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as log:
            for line in lines:
                self._at += timedelta(milliseconds=1)
                parts = [line[begin : begin + LONGEST] for begin in range(0, len(line), LONGEST)] or [""]
                for number, part in enumerate(parts, start=1):
                    mark = "F" if number == len(parts) else "P"
                    log.write(f"{self._at:%Y-%m-%dT%H:%M:%S.%f}000Z {stream} {mark} {part}\n")
