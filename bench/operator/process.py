"""A measured operator process: ours or the peer."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MODULES = {"ours": "learnloop_operator", "peer": "bench.operator.plain_kopf"}


@dataclass(frozen=True, slots=True)
class Running:
    """The kernel's figures of a process, and the process's own."""

    process: "subprocess.Popen[bytes]"
    log: Path
    started: float
    port: int

    def alive(self) -> None:
        """Does nothing.

        Raises:
            RuntimeError: the process has ended; carries the end of its log.
        """
        if self.process.poll() is not None:
            end = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the operator ended by itself with {self.process.returncode}: {end}")

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return cpu_seconds(self.process.pid)

    def cpu_wait_seconds(self) -> float:
        """How long its main thread, which does all the work, was ready to run without a core."""
        return cpu_wait_seconds(self.process.pid)

    def memory_mib(self) -> tuple[float, float]:
        """Resident set now, and at its highest."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return int(sizes["VmRSS"]) / 1024, int(sizes["VmHWM"]) / 1024


def control_plane_cpu_seconds(kubeconfig: Path) -> float:
    """User and system time of etcd and the API server so far: what clients cost them, however busy the machine."""
    return sum(cpu_seconds(int(file.read_text())) for file in (kubeconfig.parent / "run").glob("*.pid"))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_wait_seconds(pid: int) -> float:
    """How long the main thread of a process was ready to run and had no core so far; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


@contextmanager
def running(side: str, kubeconfig: Path, data_url: str, extra: Mapping[str, str] | None = None) -> Iterator[Running]:
    """`side`, a key of MODULES, over the whole cluster; stopped with SIGTERM.

    Raises:
        RuntimeError: it ended by itself; carries the end of its log.
    """
    log = kubeconfig.parent / f"{side}.log"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "LEARNLOOP_SYSTEM_NAMESPACE": "default"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {"LEARNLOOP_DATA_URL": data_url, "LEARNLOOP_PORT": str(port), "POD_NAME": "bench", **(extra or {})}
    environment |= {"LEARNLOOP_LOG_LEVEL": "WARNING"}
    started = time.monotonic()
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", MODULES[side]], env=environment, stderr=file, stdout=file)
    try:
        operator = Running(process, log, started, port)
        yield operator
        operator.alive()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
