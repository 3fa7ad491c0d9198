"""Long-running processes, found again by what they carry rather than by a number alone.

Each process writes its own pid before it becomes the daemon, so no kill of this script leaves one unrecorded; and it
carries a mark in its environment, so a pid that the system has given to somebody else is never mistaken for ours.
"""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.state_folder import State
from toolkit.errors import Refusal
from toolkit.process_tree import running

OWNER_MARK = "LEARNLOOP_CLUSTER_PROCESS"
INPUTS_MARK = "LEARNLOOP_CLUSTER_INPUTS"
LOG_TAIL_LINES = 12
EXEC_SECONDS = 2.0


@dataclass(frozen=True)
class Daemon:
    """A process that should run: its command line and the files it reads once, at its start."""

    name: str
    command: Sequence[str | Path]
    inputs: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Changes whenever a running process would have to be restarted to obey."""
        digest = hashlib.sha256("\0".join(str(part) for part in self.command).encode())
        for path in self.inputs:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


class Processes:
    """The daemons of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def pid(self, name: str) -> int | None:
        """The pid of the named daemon if it runs and is ours."""
        try:
            pid = int(self._pid_file(name).read_text())
        except (FileNotFoundError, ValueError):
            return None
        marks = _settled_environment(pid)
        return pid if marks.get(OWNER_MARK) == self._mark(name) and running(pid) else None

    def ensure(self, daemon: Daemon) -> bool:
        """Have the daemon run with these very arguments. Returns whether it had to be started."""
        fingerprint = daemon.fingerprint()
        pid = self.pid(daemon.name)
        if pid is not None:
            if _environment(pid).get(INPUTS_MARK) == fingerprint:
                return False
            self.stop(daemon.name)
        self._start(daemon, fingerprint)
        return True

    def stop(self, name: str, grace_seconds: float = 5.0) -> bool:
        """Ask the daemon to end, and end it after the grace period. Returns whether it ran."""
        pid = self.pid(name)
        if pid is not None:
            _end(pid, grace_seconds)
        self._pid_file(name).unlink(missing_ok=True)
        return pid is not None

    def descendants(self) -> list[int]:
        """Every process that carries the mark of this state folder, helpers such as container shims included."""
        prefix = self._mark("")
        own = os.getpid()
        pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
        return [pid for pid in pids if pid != own and _environment(pid).get(OWNER_MARK, "").startswith(prefix)]

    def stop_descendants(self) -> None:
        """Kill what is left of this state folder's processes."""
        for pid in self.descendants():
            _end(pid, grace_seconds=0)

    def require(self, name: str) -> None:
        """Raise Refusal with the end of the log if the daemon has died."""
        if self.pid(name) is None:
            raise Refusal(f"{name} has ended. The end of {self.log(name)}:\n{self._tail(name)}")

    def log(self, name: str) -> Path:
        """The daemon's log file."""
        return self._state.logs / f"{name}.log"

    def _start(self, daemon: Daemon, fingerprint: str) -> None:
        env = {**os.environ, **daemon.env, OWNER_MARK: self._mark(daemon.name), INPUTS_MARK: fingerprint}
        write_pid_then_become = 'echo $$ > "$0" && exec "$@"'
        with self.log(daemon.name).open("ab") as log:
            subprocess.Popen(
                ["/bin/sh", "-c", write_pid_then_become, self._pid_file(daemon.name), *map(str, daemon.command)],
                env=env,
                cwd=self._state.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # The shell may not have written yet; a daemon that a caller asks about right away must be found.
        deadline = time.monotonic() + 5
        while self.pid(daemon.name) is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tail(self, name: str) -> str:
        try:
            lines = self.log(name).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = ["(no log)"]
        return "\n".join(f"    {line[:300]}" for line in lines[-LOG_TAIL_LINES:])

    def _mark(self, name: str) -> str:
        return f"{self._state.root}:{name}"

    def _pid_file(self, name: str) -> Path:
        return self._state.run / f"{name}.pid"


def _settled_environment(pid: int) -> dict[str, str]:
    """While a process becomes another program its environment is empty for a moment (execve, proc_pid_environ(5)):
    who looks just then looks again."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (environment := _environment(pid)) and running(pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    return environment


def _environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or not ours to look at
        return {}
    if not raw:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def _end(pid: int, grace_seconds: float) -> None:
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        if not patience:
            continue
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not running(pid):
                return
            time.sleep(0.02)
