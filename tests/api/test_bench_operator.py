"""The benchmark of the operator still runs, on few objects; what it measures is judged by people, not here."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
EACH_SIDE = {
    "cold_start_s",
    "event_to_status_p50_s",
    "event_to_status_p99_s",
    "idle_writes_per_minute",
    "idle_cpu_percent",
    "rss_mib",
    "floor_edits_s",
}
BURST = {"burst_100_s", "burst_100_longest_wait_s", "burst_100_neighbour_longest_wait_s", "burst_100_floor_s"}


def test_the_benchmark_prints_every_figure_of_both_sides_and_an_idle_operator_writes_nothing() -> None:
    command = [sys.executable, "-m", "bench.operator", "--quick", "--only", "ours", "--only", "peer", "--only", "burst"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    wanted = EACH_SIDE | {f"peer_{name}" for name in EACH_SIDE} | BURST | {"kubernetes", "kopf", "objects"}
    assert wanted <= figures.keys(), sorted(wanted - figures.keys())
    assert figures["idle_writes_per_minute"] == 0
