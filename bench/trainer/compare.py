"""Compares the trainer with Stable-Baselines3; the last line printed is one JSON object.

usage: python -m bench.trainer.compare PYTHON_OF_THE_PRODUCT PYTHON_OF_THE_PEER

The sides take turns (see lanes.py). Ratios are formed pair by pair; reported are their medians, the smallest and the
largest. `steps_ratio` compares wall time, `steps_ratio_cpu_time` the CPU time of the processes.

LEARNLOOP_BENCH_SEEDS (5), LEARNLOOP_BENCH_STEPS (1.0, factor on the steps of work), LEARNLOOP_BENCH_ONLY (ppo,dqn,sac),
LEARNLOOP_BENCH_PARTS (work,solve), LEARNLOOP_BENCH_SOLVE (ppo; "ppo,dqn" takes some seven minutes more),
LEARNLOOP_BENCH_LANES (2, or the number of cores where that is less).
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from typing import Any

from bench.trainer.lanes import Lanes, Outcome, Round
from bench.trainer.statistics_of import quality, ratios
from bench.trainer.tasks import SOLVE, WORK, Task

PROGRAMS = {"ours": "ours.py", "sb3": "sb3.py"}
# Its time is spent in matrix products, the peer's in Python: next to another lane the two would not suffer alike.
ALONE = {("work", "sac")}
PEERS = ("stable-baselines3", "torch", "numpy", "gymnasium")
Pairs = list[dict[str, Outcome]]


def option(name: str, default: str) -> str:
    """LEARNLOOP_BENCH_<name>."""
    return os.environ.get(f"LEARNLOOP_BENCH_{name}", default)


def of_learning(part: str, name: str, task: Task, seed: int, pythons: dict[str, str]) -> Round:
    """Both sides of a task."""
    job = task | {"seed": seed, "until_solved": part == "solve"}
    sides = {}
    for side in PROGRAMS:
        steps = task["steps"][side] if isinstance(task["steps"], dict) else task["steps"]
        sides[side] = (pythons["ours" if side == "ours" else "peers"], PROGRAMS[side], job | {"steps": steps})
    return Round(part, name, seed, sides)


def plan(pythons: dict[str, str], seeds: int) -> list[Round]:
    """Everything asked for, the longest first."""
    only, parts, factor = option("ONLY", "ppo,dqn,sac"), option("PARTS", "work,solve"), option("STEPS", "1.0")
    rounds = []
    for seed in range(seeds):
        for name in only.split(","):
            if "solve" in parts and name in option("SOLVE", "ppo").split(","):
                rounds.append(of_learning("solve", name, SOLVE[name], seed, pythons))
            if "work" in parts:
                task = WORK[name] | {"steps": int(WORK[name]["steps"] * float(factor))}
                rounds.append(of_learning("work", name, task, seed, pythons))
    return rounds


def speeds(pairs: Pairs, side: str, clock: str = "wall_s") -> list[float]:
    """Steps per second of each pair's `side`."""
    return [pair[side]["steps"] / pair[side][clock] for pair in pairs]


def work_report(pairs: Pairs) -> dict[str, Any]:
    """Speed and final quality at equal work."""
    report: dict[str, Any] = {"seeds": len(pairs)}
    for side in pairs[0]:
        name = "" if side == "ours" else f"_{side}"
        report[f"steps_per_s{name}"] = round(statistics.median(speeds(pairs, side)))
        report[f"updates{name}"] = pairs[0][side]["updates"]
        if side != "ours":
            report |= ratios(speeds(pairs, "ours"), speeds(pairs, side), f"steps_ratio_{side}")
            report |= ratios(
                speeds(pairs, "ours", "cpu_s"), speeds(pairs, side, "cpu_s"), f"steps_ratio_cpu_time_{side}"
            )
            report |= quality(
                [pair["ours"]["returns"] for pair in pairs], [pair[side]["returns"] for pair in pairs], side
            )
    return report


def solve_report(pairs: Pairs) -> dict[str, Any]:
    """Seconds until the newest training episodes have the wanted mean; a run that never gets there counts whole."""
    took = {side: [pair[side]["solved_s"] or pair[side]["wall_s"] for pair in pairs] for side in pairs[0]}
    return ratios(took["sb3"], took["ours"], "solve_ratio_sb3") | {
        "solve_s": round(statistics.median(took["ours"]), 2),
        "solve_s_sb3": round(statistics.median(took["sb3"]), 2),
        "solved": sum(pair["ours"]["solved_s"] is not None for pair in pairs),
        "solved_sb3": sum(pair["sb3"]["solved_s"] is not None for pair in pairs),
    }


def versions(python: str) -> dict[str, str]:
    """Of the peers and what they stand on."""
    script = (
        f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {PEERS}}}))"
    )
    output = subprocess.run([python, "-c", script], capture_output=True, check=True).stdout
    return dict(json.loads(output))


def main() -> None:
    """Compare everything asked for."""
    pythons = dict(zip(("ours", "peers"), sys.argv[1:3], strict=True))
    cores = sorted(os.sched_getaffinity(0), reverse=True)[: int(option("LANES", "2"))]
    load = os.getloadavg()[0]
    rounds = plan(pythons, int(option("SEEDS", "5")))
    alone = [one for one in rounds if (one.part, one.name) in ALONE]
    outcomes = Lanes(cores).run([one for one in rounds if one not in alone]) | Lanes(cores[:1]).run(alone)
    report: dict[str, Any] = {}
    for (part, name), pairs in outcomes.items():
        report.setdefault(name, {}).update(work_report(pairs) if part == "work" else solve_report(pairs))
    report["machine"] = {
        "cores": os.cpu_count(),
        "lanes": len(cores),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    report["peers"] = versions(pythons["peers"])
    print(json.dumps(report))


if __name__ == "__main__":
    main()
