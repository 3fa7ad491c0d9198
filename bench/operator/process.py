"""A measured operator process: ours or the peer."""

import os
import signal
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
    """What the kernel says of a process, and what the process says of itself."""

    process: "subprocess.Popen[bytes]"
    log: Path
    started: float

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> tuple[float, float]:
        """Resident set now, and at its highest."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return int(sizes["VmRSS"]) / 1024, int(sizes["VmHWM"]) / 1024


@contextmanager
def running(side: str, kubeconfig: Path, data_url: str, extra: Mapping[str, str] | None = None) -> Iterator[Running]:
    """`side` (ours or peer) over the whole cluster; stopped with SIGTERM.

    Raises:
        RuntimeError: it ended by itself; carries the end of its log.
    """
    log = kubeconfig.parent / f"{side}.log"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "LEARNLOOP_SYSTEM_NAMESPACE": "default"}
    environment |= {"LEARNLOOP_DATA_URL": data_url, "LEARNLOOP_PORT": "0", "POD_NAME": "bench", **(extra or {})}
    environment |= {"LEARNLOOP_LOG_LEVEL": os.environ.get("BENCH_LOG_LEVEL", "WARNING")}
    started = time.monotonic()
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", MODULES[side]], env=environment, stderr=file, stdout=file)
    try:
        yield Running(process, log, started)
        if process.poll() is not None:
            raise RuntimeError(f"{side} ended with {process.returncode}: {log.read_text()[-2000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
