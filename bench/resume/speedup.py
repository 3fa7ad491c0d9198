"""What a second rank brings on this machine: seconds of training with one rank and with two, taking turns.

The same global batch, so the same updates. `small` are the nets of the sweep, where what is added up after each of
hundreds of small updates a second costs more than half the work saves; `large` does work that is worth sharing. Every
rank has one thread, and nothing is pinned.
"""

import statistics
from pathlib import Path
from typing import Any

from bench.resume.cases import order
from bench.resume.gang import Gang

LARGE = {
    "algorithm": "ppo",
    "ppo": {"environments": 64, "horizon": 64, "epochs": 4, "minibatches": 4, "hidden": [512, 512]},
    "totalSteps": 64 * 64 * 6,
    "data": {"environment": "Exploration-v1", "level": "beginner"},
}
RUNS: dict[str, dict[str, Any]] = {"small": order("ppo")["spec"], "large": LARGE}


def seconds(spec: dict[str, Any], ranks: int, directory: Path) -> float:
    """From the beginning of training to the end of its last step, rank 0's."""
    asked = order("ppo", checkpoint={"everySeconds": 3600}, **spec)
    gang = Gang(asked, ranks, directory)
    try:
        gang.finish()
    finally:
        gang.close()
    notes = gang.notes()
    return notes[-1].at - notes[0].at


def speedups(pairs: int, root: Path) -> dict[str, dict[str, Any]]:
    """Median and range over the pairs, above 1 where two ranks are faster."""
    report = {}
    for name, spec in RUNS.items():
        ratios, took = list[float](), {1: list[float](), 2: list[float]()}
        for number in range(pairs):
            for ranks in (1, 2) if number % 2 else (2, 1):
                took[ranks].append(seconds(spec, ranks, root / f"speed-{name}-{number}-{ranks}"))
            ratios.append(took[1][-1] / took[2][-1])
        report[name] = {
            "speedup": round(statistics.median(ratios), 2),
            "range": [round(min(ratios), 2), round(max(ratios), 2)],
            "one_rank_s": round(statistics.median(took[1]), 2),
            "two_ranks_s": round(statistics.median(took[2]), 2),
        }
        print(f"speed-up of 2 ranks, {name}: {report[name]}", flush=True)
    return report
