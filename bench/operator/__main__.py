"""`make bench-operator`: progress for people on stderr, one JSON object as the last line of stdout.

The operator's own figures (`cold_start_s`, `event_to_status_p50_s`, …), the same of a plain Kopf operator (`peer_…`),
and what a bare client needs for the same number of writes (`floor_…`); then what a rollout costs in writes, and how
long nobody leads when the leader goes. Each part gets a fresh API server and etcd on this machine, so that none pays
for the objects of another.

The operator idles for as long as its default time between two resyncs, five minutes. The parts peer, writes and
failover are measured meanwhile: what an idle operator uses is counted in processor seconds of its own, and leaves the
others all but `idle_cpu_percent` of one core.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.operator import burst, failover, thousand, writes
from bench.operator.control_plane import control_plane, version
from bench.operator.thousand import Size

FULL = Size()
QUICK = Size(objects=20, edits=10, creations=3, idle_seconds=2.0, peer_idle_seconds=2.0)
BURST, QUICK_BURST = 10_000, 100
FAILOVERS, QUICK_FAILOVERS = 5, 1
PARTS = ("burst", "ours", "peer", "writes", "failover")
BESIDE = ("peer", "writes", "failover")
"""What is measured while our own operator idles, in a process of its own."""


def main() -> int:
    """Exit code 0 when everything could be measured; no figure is judged here."""
    parser = argparse.ArgumentParser(prog="bench.operator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 objects and a burst of 100: does it still run?")
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--burst", type=int, default=0, help="objects of the burst, 10,000 if left out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the API server is stopped, too
    wanted = options.only or PARTS
    size, flood = (QUICK, QUICK_BURST) if options.quick else (FULL, BURST)
    flood = options.burst or flood
    figures: dict[str, Any] = {"objects": size.objects, "edits": size.edits, "creations": size.creations}
    figures |= {"idle_seconds": size.idle_seconds, "idle_resync_seconds": thousand.RESYNC_SECONDS}
    figures["peer_idle_seconds"] = size.peer_idle_seconds
    beside = Beside([part for part in BESIDE if part in wanted and "ours" in wanted], options.quick)
    for part in [part for part in PARTS if part in wanted and part not in beside.parts]:
        with control_plane() as kubeconfig:
            figures["kubernetes"] = version(kubeconfig)
            failovers = QUICK_FAILOVERS if options.quick else FAILOVERS
            figures |= _measure(part, kubeconfig, size, flood, failovers, beside)
    figures |= {name: value for name, value in beside.figures.items() if name not in figures}
    figures |= {name: importlib.metadata.version(name) for name in ("kopf", "aiohttp")}
    figures |= {"python": platform.python_version(), "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}))
    return 0


class Beside:
    """Other parts of this benchmark in a process of their own, so that both can be stopped in an orderly way."""

    def __init__(self, parts: Sequence[str], quick: bool) -> None:
        self.parts, self._quick = parts, quick
        self.figures: dict[str, Any] = {}

    async def run(self) -> None:
        """Sets `figures`.

        Raises:
            RuntimeError: it failed; its own words are on stderr.
        """
        if not self.parts:
            return
        only = [word for part in self.parts for word in ("--only", part)]
        command = [sys.executable, "-m", "bench.operator", *(["--quick"] if self._quick else []), *only]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: ended with {process.returncode}")
        self.figures = json.loads(output.splitlines()[-1])


def _measure(part: str, kubeconfig: Path, size: Size, flood: int, failovers: int, beside: Beside) -> dict[str, Any]:
    if part == "writes":
        return writes.measure(kubeconfig)
    if part == "failover":
        return failover.figures(asyncio.run(failover.measure(kubeconfig, failovers)))
    if part == "burst":
        found = asyncio.run(burst.measure(kubeconfig, flood))
        return {f"burst_{flood}_{key}": value for key, value in found.items()}
    found = asyncio.run(thousand.measure(part, kubeconfig, size, beside.run if part == "ours" else None))
    return {("" if part == "ours" else "peer_") + key: value for key, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())
