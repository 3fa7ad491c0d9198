"""`make bench-pipeline`: what the data plane promises about experience, measured; the last line is one JSON object.

    python -m bench.pipeline [--quick] [--only latency,chaos,…]

Each part is a process of its own (`python -m bench.pipeline.<part>`), so that none inherits another's caches. Together
they take about fifteen minutes on two cores; --quick makes everything smaller, and its figures rougher.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from typing import Any

# Part: its arguments as they are, and for --quick.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "latency": ([], ["8"]),
    "overhead": ([], ["5"]),
    "dry_run": ([], ["20000"]),
    "redaction": ([], ["10000"]),
    "tenancy": ([], ["--statements", "20000", "--requests", "500"]),
    "conformance": (["--seconds", "120"], ["--seconds", "30"]),
    "chaos": ([], ["10000"]),
}
SECONDS = 1800


def run(part: str, arguments: list[str]) -> dict[str, Any]:
    """One part; its figures, and whether it said that it met its targets."""
    started = time.monotonic()
    print(f"[bench-pipeline] {part} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-W", "ignore", "-m", f"bench.pipeline.{part}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise SystemExit(f"{part} ended with {done.returncode} and no figures")
    print(f"[bench-pipeline] {part}: {time.monotonic() - started:.0f} s: {lines[-1]}", file=sys.stderr, flush=True)
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures | {"met": done.returncode == 0}


def main() -> int:
    """1 when a part missed a target."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller, rougher, three minutes")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--only {','.join(sorted(unknown))}: one of {', '.join(PARTS)}")
    found = {part: run(part, PARTS[part][options.quick]) for part in chosen}
    summary: dict[str, Any] = {"bench": "pipeline", "quick": options.quick, "python": platform.python_version()}
    if latency := found.get("latency"):
        summary["accepted_http_p99_ms"] = latency["accepted_http"]["p99_ms"]
        summary["accepted_nats_p99_ms"] = latency["accepted_nats"]["p99_ms"]
        summary["reward_p99_ms"] = latency["reward_worker"]["p99_ms"]
    if dry_run := found.get("dry_run"):
        summary["dry_run_per_minute_and_core"] = dry_run["summary_per_minute_and_core"]
        summary["dry_run_stepwise_per_minute_and_core"] = dry_run["stepwise_per_minute_and_core"]
    if redaction := found.get("redaction"):
        summary["secrets_leaked"] = redaction["leaked_together"]
    if tenancy := found.get("tenancy"):
        summary |= {"rows_of_another_tenant": tenancy["leaked"], "adversarial_statements": tenancy["statements"]}
    if conformance := found.get("conformance"):
        summary["openapi_findings"] = conformance["returncode"]
    if chaos := found.get("chaos"):
        summary |= {name: chaos[name] for name in ("lost", "counted_twice", "kills", "stored")}
    if overhead := found.get("overhead"):
        summary["step_overhead"] = overhead["overhead_over_bare"]
    print(json.dumps(summary | {"parts": found}))
    return 0 if all(part["met"] for part in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
