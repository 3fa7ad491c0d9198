"""A real nats-server with JetStream on disk, which can be killed and started again."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

START_SECONDS = 90.0  # until a server answers, on a machine that has much else to do


class Nats:
    """Started on the same port and directory however often it was killed. `max_payload`: bytes or "8MB"; `more`: lines
    of its configuration."""

    def __init__(self, directory: Path, port: int, max_payload: str = "8MB", more: str = "") -> None:
        self.directory = directory
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self._max_payload = max_payload
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Nats":
        """Returns when the server takes connections; raises AssertionError when it never does."""
        config = self.directory / "nats.conf"
        self.directory.mkdir(parents=True, exist_ok=True)
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: {self._max_payload}\n'
            f'jetstream {{ store_dir: "{self.directory}" }}\n{self._more}'
        )
        binary = shutil.which("nats-server")
        assert binary, "nats-server is not on PATH; install the dev extra"
        self._process = subprocess.Popen([binary, "--config", str(config)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError("nats-server did not start")

    def replace(self, more: str) -> None:
        """The same server with other lines of configuration."""
        assert self._process
        self._process.terminate()  # as Kubernetes does: its leaderships go to the others first
        self._process.wait()
        self._more = more
        self.start()

    def kill(self) -> None:
        """By SIGKILL. Does nothing when it is dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
