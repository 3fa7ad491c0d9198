"""`make bench-algorithms`: every task with many seeds on both sides; the last line is one JSON object.

For each task the mean result of both sides and the 95 % bootstrap interval of their difference over seeds. Seeds begin
at 1000: hyperparameters were picked with lower ones. One process for each core, one line for each training finished.
"""

import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from bench.algorithms.tasks import TASKS, result
from bench.arguments import parser
from learnloop_trainer.evaluation import improvement

FIRST = 1000
DEFAULT = ("hierarchical-dqn", "maddpg", "maddpg-hybrid", "maml", "qmix")  # the slowest first; others by name
OTHERS = sorted(set(TASKS) - set(DEFAULT))


def summary(name: str, ours: list[float], baseline: list[float]) -> dict[str, object]:
    """Both sides of a task over the same seeds."""
    low, high = improvement(np.asarray(ours), np.asarray(baseline), 0)
    return {
        "environment": TASKS[name].environment,
        "steps": TASKS[name].steps,
        "seeds": [FIRST, FIRST + len(ours) - 1],
        "ours": round(float(np.mean(ours)), 4),
        "baseline": round(float(np.mean(baseline)), 4),
        "difference_low": round(low, 4),
        "difference_high": round(high, 4),
        "better": low > 0,
    }


def main() -> None:
    """Print a line for each training and for each task, then everything as one JSON object."""
    known = parser(__doc__)
    known.add_argument("seeds", type=int, nargs="?", help="on each side; left out: as many as each task asks for")
    known.add_argument("task", nargs="*", help=f"left out: {', '.join(DEFAULT)}; others: {', '.join(OTHERS)}")
    asked = known.parse_args()
    if unknown := set(asked.task) - set(TASKS):
        known.error(f"task {min(unknown)!r} is unknown; take one of {', '.join(sorted(TASKS))}")
    names = asked.task or list(DEFAULT)
    seeds = {name: asked.seeds or TASKS[name].seeds for name in names}
    began, found = time.perf_counter(), dict[tuple[str, bool, int], float]()
    wanted = [
        (name, ours, seed) for name in names for seed in range(FIRST, FIRST + seeds[name]) for ours in (True, False)
    ]
    processes = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(result, *one): one for one in wanted}
        for done in as_completed(running):
            name, ours, seed = running[done]
            found[running[done]] = done.result()
            side, passed = "ours" if ours else "baseline", time.perf_counter() - began
            print(f"{len(found)}/{len(wanted)} {passed:.0f}s {name} {side} {seed}: {done.result():.3f}", flush=True)
    results = {
        name: summary(name, *([found[name, ours, FIRST + n] for n in range(seeds[name])] for ours in (True, False)))
        for name in names
    }
    for name, told in results.items():
        print(f"{name}: {json.dumps(told)}", flush=True)
    print(json.dumps(results | {"wall_s": round(time.perf_counter() - began, 1)}))


if __name__ == "__main__":
    main()
