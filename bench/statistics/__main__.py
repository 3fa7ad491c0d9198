"""`make bench-statistics`: a table for people on stderr, one JSON object as the last line of stdout."""

import json
import multiprocessing
import os
import platform
import sys
import time

import numpy as np

from bench.arguments import numbers
from bench.statistics.goals import judged
from bench.statistics.parts import ALONE, MAX_DROP, SIDE_BY_SIDE, Figures, timed
from bench.statistics.rollouts import ALPHA, PER_SECOND


def main() -> int:
    """Every figure; 1 when one misses its goal."""
    began = time.perf_counter()
    figures: Figures = {"alpha": ALPHA, "max_drop": MAX_DROP, "episodes_per_second": PER_SECOND}
    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 1) as pool:
        for name, new, seconds in pool.imap_unordered(timed, SIDE_BY_SIDE, chunksize=1):
            _tell(name, new, seconds)
            figures |= new
    for part in ALONE:
        name, new, seconds = timed(part)
        _tell(name, new, seconds)
        figures |= new
    missed = judged(figures)
    figures |= {
        "goals_missed": missed,
        "seconds": round(time.perf_counter() - began, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cores": os.cpu_count(),
    }
    print(json.dumps(figures))
    return 1 if missed else 0


def _tell(part: str, new: Figures, seconds: float) -> None:
    print(f"-- {part}, {seconds:.0f} s", file=sys.stderr)
    for name, value in new.items():
        print(f"{name:48} {value}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    numbers(__doc__, sys.argv[1:])
    sys.exit(main())
