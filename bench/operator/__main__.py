"""`make bench-operator`: progress for people on stderr, one JSON object as the last line of stdout.

The operator's own figures (`cold_start_s`, `event_to_status_p50_s`, …), the same of a plain Kopf
operator (`peer_…`), and what a bare client needs for the same number of writes (`floor_…`); then what a rollout costs
in writes, and the vacancy when the leader goes. Each part gets a fresh API server and etcd on this machine,
so that none pays for the objects of another, and a limit (limits.py): what is not done by then is in `failed`, and the
others go on. About 10 minutes on two quiet cores; `--only` leaves parts out:

    ours        1,000 ModelDeployments: from nothing, cold start, event to status, idle for one default resync, memory
                (`rss_empty_mib` with none, `rss_mib` with 1,000).
                `idle_writes_per_minute` leaves Leases out, `idle_lease_writes_per_minute` has them: the leader's and
                the API server's own
    peer        the same for the plain Kopf operator
    writes      API writes of a rollout in four steps, of them to a spec (`spec_writes_per_rollout`), and whether a
                GitOps tool's dry run finds nothing to change at each weight of it (`server_side_diff_empty`)
    failover    the leader ends, is killed, or is stopped and goes on later: seconds until another one has decided
                something, and the generations about which two did (`two_decisions_for_one_generation`)

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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.operator import failover, thousand, writes
from bench.operator.control_plane import control_plane, version
from bench.operator.goals import judged
from bench.operator.limits import OutOfTime, limited
from bench.operator.thousand import Size, say

FULL = Size()
QUICK = Size(objects=20, edits=10, creations=3, idle_seconds=2.0, peer_idle_seconds=2.0)
FAILOVERS, QUICK_FAILOVERS = 3, 1
PARTS = ("ours", "peer", "writes", "failover")
MEANWHILE = ("peer", "writes", "failover")
"""A measurement while our own operator idles, in a process of its own."""

Figures = dict[str, Any]


def main() -> int:
    """Exit code 0 when everything asked for could be measured and met its goal; `--quick` figures are not judged."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the API server is stopped, too
    bench = Bench(options)
    stopped = bench.run()
    figures = bench.figures | {name: importlib.metadata.version(name) for name in ("kopf", "aiohttp")}
    figures |= {"python": platform.python_version(), "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    figures |= {**judged(figures), "failed": bench.failed}
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}))
    return stopped or int(bool(bench.failed) or (bool(figures["goals_missed"]) and not options.quick))


class Bench:
    """The parts that were asked for, one after the other, and what they have found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        wanted = options.only or PARTS
        self._patience, self._size = options.patience, QUICK if options.quick else FULL
        self._failovers = QUICK_FAILOVERS if options.quick else FAILOVERS
        self._meanwhile = Meanwhile([part for part in MEANWHILE if part in wanted and "ours" in wanted], options)
        self._parts = [part for part in PARTS if part in wanted and part not in self._meanwhile.parts]
        size = self._size
        self.figures: Figures = {"objects": size.objects, "edits": size.edits, "creations": size.creations}
        self.figures |= {"idle_seconds": size.idle_seconds, "idle_resync_seconds": thousand.RESYNC_SECONDS}
        self.figures["peer_idle_seconds"] = size.peer_idle_seconds
        self.failed: dict[str, str] = {}

    def run(self) -> int:
        """0, or the exit code after the signal that ended it early; what was measured until then is kept."""
        for number, part in enumerate(self._parts, 1):  # the list may grow
            note = f", with {', '.join(self._meanwhile.parts)} while it idles" if self._has_company(part) else ""
            say(f"part {number} of {len(self._parts)}: {part}{note}")
            try:
                self._part(part)
            except (SystemExit, KeyboardInterrupt) as error:
                self.failed[part] = "stopped by a signal"
                return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 130
        return 0

    def _part(self, part: str) -> None:
        started = time.monotonic()
        try:
            with limited(part, self._patience), control_plane() as kubeconfig:
                self.figures["kubernetes"] = version(kubeconfig)
                self.figures |= self._measure(part, kubeconfig)
        except (Exception, OutOfTime) as error:  # the other parts are worth having all the same
            self.failed[part] = f"{type(error).__name__}: {error}"[:1000]
            say(f"{part} could not be measured: {self.failed[part]}")
        if self._has_company(part):
            self._take_over()
        seconds = self.figures[f"part_{part}_seconds"] = round(time.monotonic() - started)
        missed = ", ".join(judged(self.figures)["goals_missed"]) or "none"
        say(f"{part}: {seconds} s; goals missed so far: {missed}")

    def _has_company(self, part: str) -> bool:
        return part == "ours" and bool(self._meanwhile.parts)

    def _take_over(self) -> None:
        figures = self._meanwhile.figures
        self.figures |= {
            name: value for name, value in figures.items() if name not in self.figures and name != "failed"
        }
        self.failed |= figures.get("failed", {})
        if not figures:  # it never came to idle
            self._parts += self._meanwhile.parts

    def _measure(self, part: str, kubeconfig: Path) -> Figures:
        if part == "writes":
            return writes.measure(kubeconfig)
        if part == "failover":
            return failover.figures(*asyncio.run(failover.measure(kubeconfig, self._failovers, seed=1)))
        meanwhile = self._meanwhile.run if self._has_company(part) else None
        measured = asyncio.run(thousand.measure(part, kubeconfig, self._size, meanwhile))
        return {f"peer_{key}" if part == "peer" else key: value for key, value in measured.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.operator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20 objects: does it still run?")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone (may be repeated)")
    parser.add_argument(
        "--patience", type=float, default=1.0, metavar="F", help="give each part F times as long: for a busy machine"
    )
    return parser.parse_args()


class Meanwhile:
    """Other parts of this benchmark in a process of their own, so that both can be stopped in an orderly way."""

    def __init__(self, parts: Sequence[str], options: argparse.Namespace) -> None:
        self.parts, self._options = parts, options
        self.figures: Figures = {}

    async def run(self) -> None:
        """Sets `figures`; what failed is said in their `failed`."""
        if not self.parts:
            return
        only = [word for part in self.parts for word in ("--only", part)]
        same = [*(["--quick"] if self._options.quick else []), "--patience", str(self._options.patience)]
        command = [sys.executable, "-m", "bench.operator", *same, *only]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        lines = output.splitlines()
        ended = {"failed": {", ".join(self.parts): f"{' '.join(command)}: ended with {process.returncode}"}}
        self.figures = json.loads(lines[-1]) if lines else ended


if __name__ == "__main__":
    sys.exit(main())
