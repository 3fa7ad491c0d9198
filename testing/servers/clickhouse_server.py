"""A ClickHouse of a test's own, as a process that can be killed and started again."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START_SECONDS = 240.0  # until it answers, on a machine that has much else to do
USER, PASSWORD = "learnloop", "p@ss/word"


class ClickHouseServer:
    """Started on the same port and directory however often it was killed. See `clickhouse_http`."""

    def __init__(self, directory: Path, port: int) -> None:
        self.dsn = f"clickhouse://{USER}:{PASSWORD.replace('@', '%40').replace('/', '%2F')}@127.0.0.1:{port}/default"
        self._ping = f"http://127.0.0.1:{port}/ping"
        program = Path(__file__).with_name("clickhouse_http.py")
        self._command = [sys.executable, str(program), str(port), str(directory), USER, PASSWORD]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ClickHouseServer":
        """Returns when the server answers; raises AssertionError when it never does."""
        self._process = subprocess.Popen(self._command)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the server ended with {self._process.returncode}"
            try:
                urllib.request.urlopen(self._ping, timeout=5).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError("ClickHouse did not start")

    def kill(self) -> None:
        """By SIGKILL. Does nothing when it is dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
