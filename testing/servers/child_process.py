"""A program of somebody else's, run for the time of a block."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL."""


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """Yields its pid; what it prints is added to `log`. `environment` None: this process's own."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def carrying(mark: str) -> dict[int, str]:
    """Processes that have `NAME=value` in their environment, with their command lines."""
    result = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
            if line and mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                result[int(process.name)] = line
        except OSError:
            continue
    return result
