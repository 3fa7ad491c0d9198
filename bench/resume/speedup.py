"""The gain of a second rank on this machine: seconds of training with one rank and with two, taking turns.

The same global batch, so the same updates. `small` are the nets of the sweep, where what is added up after each of
hundreds of small updates a second costs more than half the work saves; `large` does work that is worth sharing. A rank
has one thread, and nothing is pinned. For `large` the other use of a second core, a second thread, is timed too.
"""

import statistics
from pathlib import Path
from typing import Any

from bench.resume.cases import order
from bench.resume.gang import Gang

LARGE = {
    "algorithm": "ppo",
    "hyperparameters": {"environments": 64, "horizon": 64, "epochs": 4, "minibatches": 4, "hidden": [512, 512]},
    "totalSteps": 64 * 64 * 6,
    "data": {"environment": "grids:Exploration", "level": "beginner"},
}
RUNS: dict[str, dict[str, Any]] = {"small": order("ppo")["spec"], "large": LARGE}


ONE, TWO, THREADED = "one-rank", "two-ranks", "two-threads"
WAYS = {ONE: (1, 1), TWO: (2, 1), THREADED: (1, 2)}


def seconds(spec: dict[str, Any], ranks: int, threads: int, directory: Path) -> float:
    """From the beginning of training to the end of its last step, rank 0's."""
    job = order("ppo", checkpoint={"everySeconds": 3600}, **spec)
    gang = Gang(job, ranks, directory, threads)
    try:
        gang.finish()
    finally:
        gang.close()
    notes = gang.notes()
    return notes[-1].at - notes[0].at


def speedups(rounds: int, root: Path) -> dict[str, dict[str, Any]]:
    """Median and range over the rounds, above 1 where it is faster than one rank with one thread."""
    report: dict[str, dict[str, Any]] = {}
    for name, spec in RUNS.items():
        ways = [ONE, TWO, THREADED] if name == "large" else [ONE, TWO]  # the trainer gives small nets one thread
        took: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds):
            for way in ways[:: 1 if number % 2 else -1]:
                took[way].append(seconds(spec, *WAYS[way], root / f"speed-{name}-{number}-{way}"))
        report[name] = {"one_rank_s": round(statistics.median(took[ONE]), 2)}
        for way in ways[1:]:
            ratios = [before / after for before, after in zip(took[ONE], took[way], strict=True)]
            report[name] |= {way: round(statistics.median(ratios), 2)}
            report[name] |= {f"{way}-range": [round(min(ratios), 2), round(max(ratios), 2)]}
        print(f"speed-up over one rank, {name}: {report[name]}", flush=True)
    return report
