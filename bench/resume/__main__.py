"""`make bench-resume`: what kill -9 and SIGTERM cost a run; the last line is one JSON object.

usage: python -m bench.resume [--points 100] [--seed 1] [--pairs 8] [--only sweep,overhead,speedup]
`overhead_ratio` is the worst case's share of processor time; `speedup` is over one rank, below 1 for small nets.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.resume.overhead import overheads
from bench.resume.speedup import speedups
from bench.resume.sweep import figures, sweep


def main() -> None:
    """Everything asked for, one JSON object at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100, help="signals sent, over all runs")
    parser.add_argument("--seed", type=int, default=1, help="of the moments, the signals and the victims")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of stretches with and without checkpoints")
    parser.add_argument("--only", default="sweep,overhead,speedup", help="parts, with commas between them")
    options = parser.parse_args()
    parts, report, began = options.only.split(","), dict[str, Any](), time.monotonic()
    report["load_before"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="bench-resume-") as root:
        if "sweep" in parts:
            report |= figures(sweep(options.points, options.seed, Path(root)))
            print(f"sweep: {json.dumps(report)}", flush=True)
        if "overhead" in parts:
            result = overheads(options.pairs)
            report["overhead_ratio"] = round(max(case["ratio"] for case in result.values()) - 1, 4)
            report["overhead"] = result
        if "speedup" in parts:
            report["speedup"] = speedups(2 if options.pairs < 8 else 3, Path(root))
    report |= {"cores": os.cpu_count(), "seconds": round(time.monotonic() - began)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
