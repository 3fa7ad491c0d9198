"""`learnloop local up` in a folder of a test's own, and what it leaves behind."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.api import Json
from demo.one_machine import LocalApi
from testing.servers.child_process import carrying
from testing.waiting import SECONDS, until

HACK = Path(__file__).resolve().parents[2] / "hack"
LOCAL = ("-m", "learnloop_local", "local")
MARK = "ONE_MACHINE_OF_A_TEST"


class OneMachine:
    """One `learnloop local up`. Every process that it starts carries its mark."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, LocalApi(folder / "local" / "api.sock")
        self._environment = os.environ | {"LEARNLOOP_LOCAL": str(folder), MARK: str(folder)}
        self._environment |= {"PYTHONPATH": str(HACK), "TMPDIR": str(folder)}
        self._environment["PATH"] = "/usr/bin:/bin"  # no Docker, no Go, no kubectl
        self.process: subprocess.Popen[str] | None = None

    def command(self, *arguments: str) -> "subprocess.Popen[str]":
        """`arguments`: a program of hack/ and its own."""
        words = [sys.executable, *arguments]
        return subprocess.Popen(
            words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def ends(self, *arguments: str) -> tuple[int, str]:
        """A command to its end: exit status and output."""
        process = self.command(*LOCAL, *arguments)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output

    def start(self, *program: str) -> "OneMachine":
        self.process = self.command(*(program or (*LOCAL, "up")))
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "console: " in line:
                return self
        raise AssertionError("".join(lines))

    def left(self, module: str = "") -> list[int]:
        """Processes that it has started and that run, all or those of one module."""
        return [pid for pid, line in carrying(f"{MARK}={self.folder}").items() if module in line]

    def kill(self, module: str) -> None:
        for pid in self.left(module):
            os.kill(pid, signal.SIGKILL)

    def containers(self, labels: str) -> list[Json]:
        """The container statuses of pods with these labels."""
        pods = self.api.pods("default", labels)
        return [one for pod in pods for one in (pod.get("status") or {}).get("containerStatuses", ())]


@contextmanager
def one_machine(*program: str) -> Iterator[OneMachine]:
    """Started, by `learnloop local up` or by the program, and down afterwards, with nothing left."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ll") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user where root starts it
        machine = OneMachine(Path(folder)).start(*program)
        try:
            yield machine
        finally:
            answer = machine.ends("down")
        assert answer == (0, "nothing runs here\n" if program else "stopped\n"), answer
        until(lambda: not machine.left())
