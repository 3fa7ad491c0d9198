"""`make bench-algorithms`: every task with many seeds on both sides; the last line is one JSON object.

For each task the mean held-out returns of both sides and the 95 % bootstrap interval of their difference over seeds.
usage: python -m bench.algorithms [seeds [task...]]
"""

import json
import sys
import time

import numpy as np
from bench.algorithms.tasks import TASKS, Side, Task, held_out_return

from learnloop_trainer.evaluation import improvement


def compare(task: Task, seeds: int) -> dict[str, object]:
    """Both sides with every seed."""
    began = time.perf_counter()

    def side(which: Side) -> np.ndarray:
        return np.asarray([held_out_return(task.environment, which, task.steps, seed) for seed in range(seeds)])

    ours, theirs = side(task.ours), side(task.baseline)
    low, high = improvement(ours, theirs, 0)
    return {
        "environment": task.environment,
        "steps": task.steps,
        "seeds": seeds,
        "ours": round(float(ours.mean()), 4),
        "baseline": round(float(theirs.mean()), 4),
        "difference_low": round(low, 4),
        "difference_high": round(high, 4),
        "better": low > 0,
        "wall_s": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Print a line for each task, then everything as one JSON object."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    results = {}
    for name in sys.argv[2:] or TASKS:
        results[name] = compare(TASKS[name], seeds)
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
