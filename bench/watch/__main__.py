"""`make bench-watch`: whether what goes wrong is seen, who waits is told in time, and nobody is told twice.

    python -m bench.watch [--quiet 1000] [--agents 200] [--only anomalies,queueing,…] [--quick]

anomalies      false alarms of quiet agents, missed anomalies of three planted kinds
queueing       200 agents and one cluster: waits, starvation, fair shares, over simulated days
notifications  messages lost and doubled while data plane, PostgreSQL and receivers are killed with SIGKILL
overhead       what metrics and traces cost: processor time with and without them

The last line is JSON with every figure. Exit code 1 when a goal is missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.watch import anomalies, notifications, overhead, queueing

PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "anomalies": lambda options: anomalies.measured(options.quiet, options.agents, options.seed),
    "queueing": lambda options: queueing.measured(1 if options.quick else 3, options.seed),
    "notifications": lambda options: notifications.measured(options.agents, 3 if options.quick else 10, options.seed),
    "overhead": lambda options: overhead.measured(2 if options.quick else 8),
}


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when a goal is missed."""
    options = _options(arguments)
    figures: dict[str, Any] = {}
    for part in options.only:
        began = time.monotonic()
        figures[part] = PARTS[part](options)
        figures[part]["seconds"] = round(time.monotonic() - began, 1)
    missed = [f"{part}: {goal}" for part, found in figures.items() for goal in found["missed"]]
    print("goals: " + ("all met" if not missed else f"missed: {'; '.join(missed)}"))
    print(json.dumps(figures | {"missed": missed, "met": not missed}))
    return 1 if missed else 0


def _parts(text: str) -> list[str]:
    found = text.split(",")
    unknown = [part for part in found if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no part: name some of {', '.join(PARTS)}")
    return found


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.watch", description=__doc__)
    parser.add_argument("--quiet", type=int, default=1000, help="simulated agents with nothing wrong (%(default)s)")
    parser.add_argument("--agents", type=int, default=200, help="simulated agents of each planted kind (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=_parts, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="rougher figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
