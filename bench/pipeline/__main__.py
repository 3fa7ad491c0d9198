"""`make bench-pipeline`: what the data plane promises about experience, measured; the last line is one JSON object.

    python -m bench.pipeline [--quick] [--only latency,chaos,…] [--minutes 30] [--tls]

Each part is a process of its own (`python -m bench.pipeline.<part>`), so that none inherits another's caches. Together
they take about twenty minutes on two quiet cores and are cut off after `--minutes`. When those so far were so slow that
the time would not do for all, the next part becomes a short one where it only measures speeds (`ADAPTING`) and is named
in `shortened`: its figures are rougher; how many trajectories, secrets and statements there are stays as it is.
--tls, which is `TLS=1` of make, adds the part `encrypted`: the ways in over TLS beside the same without.
--quick makes everything smaller, its figures rougher, and misses the goals that are a size. A part that fails (it has
no figures, ends with another code than 0, or says `"met": false`) is named in `failed`, and the other parts run. Goals
without a figure are missed.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any, NamedTuple

from bench.pipeline.goals import GOALS


class Part(NamedTuple):
    """One part: its arguments as they are and for --quick, and the seconds either takes on two quiet cores."""

    arguments: list[str]
    quick: list[str]
    seconds: float
    quick_seconds: float


# The quiet ones first: what a part leaves in caches warms the next.
PARTS = {
    "latency": Part([], ["8"], 120, 45),
    "overhead": Part([], ["5"], 90, 30),
    "dry_run": Part([], ["20000"], 60, 20),
    "redaction": Part([], ["10000"], 60, 8),
    "fuzzed": Part([], ["500"], 25, 15),
    "conformance": Part(["--seconds", "300"], ["--seconds", "30"], 310, 45),
    "tenancy": Part([], ["--statements", "20000", "--requests", "500"], 150, 20),
    "chaos": Part([], ["6000"], 400, 60),
}
ENCRYPTED = "encrypted"
WISHED = {ENCRYPTED: Part([], ["10"], 260, 130)}
"""What runs where it is asked for alone, last of all."""
ADAPTING = {"latency", "overhead", "dry_run"}
MINUTES = 30.0
TELL_SECONDS = 30.0
TOLD_LINES = 400  # of what a part that failed has printed


def tell(sentence: str) -> None:
    """Progress, for whoever waits."""
    print(f"[bench-pipeline] {sentence}", file=sys.stderr, flush=True)


def run(part: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    """One part's figures, with the seconds it took and its exit code; {"error": …} when it printed none."""
    started = time.monotonic()
    tell(f"{part} …")
    command = [sys.executable, "-W", "ignore", "-m", f"bench.pipeline.{part}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    output = ""
    while process.returncode is None:
        left = seconds - (time.monotonic() - started)
        if left <= 0:
            output = stopped(process)
            break
        try:
            output, _ = process.communicate(timeout=min(TELL_SECONDS, left))
        except subprocess.TimeoutExpired:
            tell(f"{part}: {time.monotonic() - started:.0f} s so far")
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
        print("\n".join(lines[-TOLD_LINES:-1]), file=sys.stderr, flush=True)
    tell(f"{part}: {took:.0f} s: {json.dumps(figures)}")
    return figures


def stopped(process: subprocess.Popen[str]) -> str:
    """Ends a part that took too long, and the servers it started; returns what it had printed."""
    os.killpg(process.pid, signal.SIGINT)  # it takes its servers and directories with it
    try:
        return process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def failed(figures: dict[str, Any]) -> bool:
    """Whatever its goals here are, a part that has no figures or is not content with its own has failed."""
    return "error" in figures or figures.get("part_exit_code", 0) != 0 or figures.get("met") is False


def eta(coming: list[str], over: list[str], spent: float, *, short: Set[str] = frozenset()) -> float:
    """Seconds that the coming parts will take, if they are as much slower than on a quiet machine as those over were.

    Args:
        spent: seconds that `over` took together.
        short: those that are, or were, run with the arguments of --quick.
    """
    all_parts = PARTS | WISHED
    usual = {
        part: all_parts[part].quick_seconds if part in short else all_parts[part].seconds for part in (*coming, *over)
    }
    slower = spent / sum(usual[part] for part in over) if over else 1.0
    return slower * sum(usual[part] for part in coming)


def shorter(coming: list[str], over: list[str], spent: float, left: float, short: Set[str]) -> Set[str]:
    """`short`, and where `left` seconds would not do for the coming parts as they are, the next one if it can be."""
    if eta(coming, over, spent, short=short) <= left:
        return short
    return short | (ADAPTING & {coming[0]})


def summary(
    found: dict[str, dict[str, Any]], *, quick: bool, seconds: float, shortened: Sequence[str] = ()
) -> dict[str, Any]:
    """Every figure with its bar, and the goals that were missed, of the parts that were asked for."""
    goals = [goal for goal in GOALS if goal.part in found]
    figures = {goal.name: goal.of(found) for goal in goals}
    return {
        "bench": "pipeline",
        "quick": quick,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": round(seconds),
        **figures,
        "bars": {goal.name: f"{goal.kind} {goal.bar}" for goal in goals},
        "shortened": list(shortened),
        "failed": [part for part, figures in found.items() if failed(figures)],
        "goals_missed": [goal.name for goal in goals if not goal.met(figures[goal.name])],
        "parts": found,
    }


def main() -> int:
    """1 when a part failed or missed a goal."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller, rougher, four minutes")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--tls", action="store_true", help="the ways in over TLS, too, beside the same without")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which the part in progress is the last")
    options = parser.parse_args()
    all_parts = PARTS | WISHED
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(all_parts):
        parser.error(f"--only {','.join(sorted(unknown))}: one of {', '.join(all_parts)}")
    if options.tls and ENCRYPTED not in chosen:
        chosen.append(ENCRYPTED)
    started = time.monotonic()
    found: dict[str, dict[str, Any]] = {}
    short: Set[str] = frozenset(chosen if options.quick else ())
    for place, part in enumerate(chosen):
        spent = time.monotonic() - started
        rest = options.minutes * 60 - spent
        short = shorter(chosen[place:], chosen[:place], spent, rest, short)
        left = eta(chosen[place:], chosen[:place], spent, short=short)
        tell(f"part {place + 1} of {len(chosen)}; about {left / 60:.0f} min left")
        arguments = all_parts[part].quick if part in short else all_parts[part].arguments
        found[part] = run(part, arguments, rest) if rest > 0 else {"error": "no time was left"}
    shortened = [part for part in chosen if part in short]
    result = summary(found, quick=options.quick, seconds=time.monotonic() - started, shortened=shortened)
    print(json.dumps(result))
    return 1 if result["failed"] or result["goals_missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
