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
ROUND = {"s", "longest_wait_s", "neighbour_longest_wait_s"}
SHARES = {f"{wait}_{share}_s" for wait in ("longest_wait", "neighbour_longest_wait") for share in ("queue", "write")}
BURST = {f"burst_150_{pace}{name}" for pace in ("", "paced_") for name in ROUND | SHARES} | {"burst_150_least_wait_s"}
PEER_BURST = {f"peer_burst_150_{pace}{name}" for pace in ("", "paced_") for name in ROUND}


def measured(*parts: str) -> dict[str, Any]:
    """The last line of the benchmark's standard output."""
    only = [word for part in parts for word in ("--only", part)]
    command = [sys.executable, "-m", "bench.operator", "--quick", "--burst", "150", *only]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=290, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_benchmark_prints_every_figure_of_both_sides_and_an_idle_operator_writes_only_leases() -> None:
    figures = measured("ours", "peer")
    wanted = EACH_SIDE | {f"peer_{name}" for name in EACH_SIDE} | {"kubernetes", "kopf", "objects", "goals_missed"}
    assert wanted <= figures.keys(), sorted(wanted - figures.keys())
    assert figures["idle_writes_per_minute"] == 0


def test_a_burst_of_any_size_ends_and_says_where_its_waits_were_spent() -> None:
    figures = measured("burst")
    assert figures.keys() >= BURST, sorted(BURST - figures.keys())
    for title in ("burst_150_longest_wait", "burst_150_paced_neighbour_longest_wait"):
        shares = [figures[f"{title}_{share}_s"] for share in ("told_late", "queue", "pass", "write", "seen_late")]
        assert abs(sum(shares) - figures[f"{title}_s"]) < 0.01, "the shares add up to the wait"


def test_the_plain_operator_works_off_the_same_burst() -> None:
    figures = measured("peer_burst")
    assert figures.keys() >= PEER_BURST, sorted(PEER_BURST - figures.keys())


def test_a_burst_of_no_size_is_refused_with_the_sizes_there_are() -> None:
    for wrong in ("0", "-5", "ten", "19", "1e4"):
        command = [sys.executable, "-m", "bench.operator", "--only", "burst", f"--burst={wrong}"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
        assert done.returncode == 2
        assert f"'{wrong}' is no whole number from 20 to 50000" in done.stderr


def test_a_part_that_takes_too_long_is_given_up_and_what_was_measured_is_told() -> None:
    command = [sys.executable, "-m", "bench.operator", "--quick", "--only", "writes", "--patience", "0.01"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 1
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["failed"] == {"writes": "OutOfTime: not done after 1 s"}
    assert "writes_per_rollout" in figures["goals_not_measured"]
