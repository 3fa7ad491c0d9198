"""`make bench-resume`: what kill -9 and SIGTERM cost a run; the last line is one JSON object.

usage: python -m bench.resume [--points 100] [--seed 1] [--pairs 12] [--only sweep,overhead,speedup]
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.resume.sweep import Tally, figures, sweep


def main() -> None:
    """Everything asked for, one JSON object at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100, help="signals sent, over all runs")
    parser.add_argument("--seed", type=int, default=1, help="of the moments, the signals and the victims")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of stretches with and without checkpoints")
    parser.add_argument("--only", default="sweep,overhead,speedup", help="parts, with commas between them")
    asked = parser.parse_args()
    parts, report, began = asked.only.split(","), dict[str, Any](), time.monotonic()
    report["load_before"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="bench-resume-") as root:
        if "sweep" in parts:
            tally = Tally()
            sweep(asked.points, asked.seed, Path(root), tally)
            report |= figures(tally)
    report |= {"cores": os.cpu_count(), "seconds": round(time.monotonic() - began)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
