"""`make bench-pipeline`: measures the data plane's promises about experience; the last line is one JSON object.

    python -m bench.pipeline [--quick] [--only latency,chaos,…] [--minutes 30]

Each part is a process of its own (`python -m bench.pipeline.<part>`), so that none inherits another's caches. Together
they take about twenty minutes on two quiet cores; `--minutes` cuts them off. --quick makes everything smaller, its
figures rougher, and misses the goals that are a size. A part that prints no figures, exits with a code other than 0, or
prints `"met": false` is named in `failed`, and the other parts run. A goal without a figure is missed.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from bench.pipeline.goals import GOALS

# Part → its arguments for --quick. The quiet parts run first: each warms caches for the next.
PARTS: dict[str, list[str]] = {
    "latency": ["8"],
    "history": ["5000"],
    "overhead": ["5"],
    "redaction": ["10000"],
    "fuzzed": ["500"],
    "conformance": ["--seconds", "30"],
    "tenancy": ["--statements", "20000", "--requests", "500"],
    "chaos": ["6000"],
}
MINUTES = 30.0
PRINTED_LINES = 400
"""How much of a failed part's output is printed."""


def progress(sentence: str) -> None:
    """Print a line of progress."""
    print(f"[bench-pipeline] {sentence}", file=sys.stderr, flush=True)


def run(part: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    """Run one part. Returns its figures, its seconds and its exit code; {"error": …} where it printed none."""
    started = time.monotonic()
    progress(f"{part} …")
    command = [sys.executable, "-W", "ignore", "-m", f"bench.pipeline.{part}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        output = stop(process)
    lines = output.strip().splitlines() or [""]
    took = round(time.monotonic() - started, 1)
    figures: dict[str, Any] | None = None
    with suppress(ValueError):
        printed = json.loads(lines[-1])
        figures = printed if isinstance(printed, dict) else None
    if figures is None:
        figures = {"error": f"no figures; it ended with {process.returncode} after {took:.0f} s: {lines[-1][:200]}"}
    figures |= {"part_seconds": took, "part_exit_code": process.returncode}
    if failed(figures):
        print("\n".join(lines[-PRINTED_LINES:-1]), file=sys.stderr, flush=True)
    progress(f"{part}: {took:.0f} s: {json.dumps(figures)}")
    return figures


def stop(process: subprocess.Popen[str]) -> str:
    """End a part that took too long, with the servers it started. Returns what it printed."""
    os.killpg(process.pid, signal.SIGINT)  # the part then stops its servers and removes its folders
    try:
        return process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def failed(figures: dict[str, Any]) -> bool:
    """Whether a part has no figures, or rejects its own."""
    return "error" in figures or figures.get("part_exit_code", 0) != 0 or figures.get("met") is False


def summary(parts: dict[str, dict[str, Any]], *, quick: bool, seconds: float) -> dict[str, Any]:
    """Every figure with its bar, and the missed goals, of the parts that ran."""
    goals = [goal for goal in GOALS if goal.part in parts]
    figures = {goal.name: goal.of(parts) for goal in goals}
    return {
        "bench": "pipeline",
        "quick": quick,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": round(seconds),
        **figures,
        "bars": {goal.name: f"{goal.kind} {goal.bar}" for goal in goals},
        "failed": [part for part, figures in parts.items() if failed(figures)],
        "goals_missed": [goal.name for goal in goals if not goal.met(figures[goal.name])],
        "parts": parts,
    }


def main() -> int:
    """Returns 1 where a part failed or missed a goal."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller, rougher, four minutes")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no part runs longer than this after the start")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--only {','.join(sorted(unknown))}: one of {', '.join(PARTS)}")
    started = time.monotonic()
    parts: dict[str, dict[str, Any]] = {}
    for part in chosen:
        left = options.minutes * 60 - (time.monotonic() - started)
        arguments = PARTS[part] if options.quick else []
        parts[part] = run(part, arguments, left) if left > 0 else {"error": "no time was left"}
    result = summary(parts, quick=options.quick, seconds=time.monotonic() - started)
    print(json.dumps(result))
    return 1 if result["failed"] or result["goals_missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
