"""The benchmark of the operator still runs, on few objects; what it measures is judged by people, not here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, ["hack", os.environ.get("PYTHONPATH")]))}
EACH_SIDE = {
    "cold_start_s",
    "event_to_status_p50_s",
    "event_to_status_p99_s",
    "idle_writes_per_minute",
    "idle_lease_writes_per_minute",
    "idle_cpu_percent",
    "rss_mib",
    "floor_edits_s",
}


def measured(*parts: str) -> dict[str, Any]:
    """The last line of the benchmark's standard output."""
    only = [word for part in parts for word in ("--only", part)]
    command = [sys.executable, "-m", "bench.operator", "--quick", *only]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=290, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_benchmark_prints_every_figure_of_both_sides_and_an_idle_operator_writes_only_leases() -> None:
    figures = measured("ours", "peer")
    wanted = EACH_SIDE | {f"peer_{name}" for name in EACH_SIDE} | {"kubernetes", "kopf", "objects", "goals_missed"}
    assert wanted <= figures.keys(), sorted(wanted - figures.keys())
    assert figures["idle_writes_per_minute"] == 0


def test_a_part_that_takes_too_long_is_given_up_and_what_was_measured_is_told() -> None:
    command = [sys.executable, "-m", "bench.operator", "--quick", "--only", "writes", "--patience", "0.01"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 1
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["failed"] == {"writes": "OutOfTime: not done after 1 s"}
    assert "spec_writes_per_rollout" in figures["goals_not_measured"]
