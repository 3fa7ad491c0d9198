"""All built-in suites side by side, as their Jobs run: a process each, against a model that takes its time."""

import os
import time
from pathlib import Path
from typing import Any

from bench.gates.broken import started
from bench.gates.gate import SUITES, Gate
from bench.gates.models import GOOD

MOST_SECONDS = 180.0


def measured(gate: Gate, pause: float) -> dict[str, Any]:
    """Seconds from the first process to the last report, and whether a good model passes all of them."""
    began, before = time.monotonic(), os.times()
    running = {builtin: started(gate.settings(builtin, GOOD, GOOD)) for builtin in SUITES}
    failed = []
    for builtin, process in running.items():
        _, errors = process.communicate(timeout=600)
        if process.returncode:
            failed.append(f"{builtin}: {errors.decode()[-300:]}")
    seconds, after = time.monotonic() - began, os.times()
    for builtin in SUITES:
        report = Path(gate.settings(builtin, GOOD, GOOD).report)
        verdict = gate.judged(builtin, GOOD, report.read_bytes() if report.exists() else None)
        if verdict.verdict != "passed":
            failed.append(f"{builtin}: {verdict.message}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    missed = failed + ([f"{seconds:.0f} s"] if seconds > MOST_SECONDS else [])
    return {
        "suites": len(SUITES),
        "seconds_an_answer": pause,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(spent, 1),
        "missed": missed,
    }
