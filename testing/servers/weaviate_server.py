"""A real Weaviate with its data on disk, built from its Go module, which can be killed and started again."""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from go_programs import go_build
from testing.servers.ports import held_port

KEY = "only-for-tests"
START_SECONDS = 90.0  # until a server answers, on a machine that has much else to do
_PORTS = ("http", "GRPC_PORT", "CLUSTER_GOSSIP_BIND_PORT", "CLUSTER_DATA_BIND_PORT")


class Weaviate:
    """Started on the same ports and directory however often it was killed.

    Args:
        ports: by the names of `_PORTS`, and both of Raft's.
    """

    def __init__(self, binary: Path, directory: Path, ports: dict[str, int]) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{ports['http']}"
        self.grpc = f"127.0.0.1:{ports['GRPC_PORT']}"
        self._binary = binary
        self._ports = ports
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Weaviate":
        """Returns when the server is ready; raises AssertionError, with the end of its log, when it never is."""
        env = {
            **{name: str(port) for name, port in self._ports.items() if name != "http"},
            "PATH": os.environ["PATH"],
            "PERSISTENCE_DATA_PATH": str(self.directory / "data"),
            "CLUSTER_HOSTNAME": "weaviate-0",
            "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
            "CLUSTER_IN_LOCALHOST": "true",
            "RAFT_BOOTSTRAP_EXPECT": "1",
            "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
            "AUTHENTICATION_APIKEY_ENABLED": "true",
            "AUTHENTICATION_APIKEY_ALLOWED_KEYS": KEY,
            "AUTHENTICATION_APIKEY_USERS": "learnloop",
            "AUTHORIZATION_ADMINLIST_ENABLED": "true",
            "AUTHORIZATION_ADMINLIST_USERS": "learnloop",
            "DISABLE_TELEMETRY": "true",
            "GO_PROFILING_DISABLE": "true",
            "GOMAXPROCS": "2",
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / "weaviate.log"
        listen = ["--host", "127.0.0.1", "--port", str(self._ports["http"]), "--scheme", "http"]
        with log.open("ab") as output:
            self._process = subprocess.Popen([self._binary, *listen], env=env, stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/v1/.well-known/ready", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"Weaviate did not start:\n{log.read_text()[-2000:]}")

    def rss_mib(self) -> float:
        """Resident memory of the server."""
        assert self._process
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def kill(self) -> None:
        """By SIGKILL. Does nothing when it is dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def own_weaviate(directory: Path) -> Iterator[Weaviate]:
    """A started server; the first one on a machine is built, which takes minutes."""
    binary = go_build.ensure(go_build.WEAVIATE, go_build.WEAVIATE.programs)["weaviate-server"]
    with ExitStack() as held:
        ports = {name: held.enter_context(held_port()) for name in _PORTS}
        ports["RAFT_PORT"], ports["RAFT_INTERNAL_RPC_PORT"] = held.enter_context(_two_in_a_row())
        server = Weaviate(binary, directory, ports).start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def _two_in_a_row() -> Iterator[tuple[int, int]]:
    """A server alone takes the port after Raft's for its RPC, whatever its flags say."""
    for _ in range(100):
        with held_port() as first, socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind(("127.0.0.1", first + 1))
            except (OSError, OverflowError):
                continue
            yield first, first + 1
            return
    raise AssertionError("every free port has a taken neighbour")
