"""Trains in worlds and compares with Stable-Baselines3 at equal steps; the last line printed is one JSON object.

usage: python -m bench.worlds [--seeds N] [--only WORLD,WORLD] [--nightly]

Returns of held-out episodes: interquartile means over the runs, bootstrap intervals. The exit status is 1 where ours
is lower beyond the interval of the difference.
"""

import argparse
import json
import os
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.trainer.lanes import Lanes, Round
from bench.worlds.figures import compared
from bench.worlds.tasks import NIGHTLY, WORLDS, Task

HERE = Path(__file__).resolve().parent
HOURS = 6  # that one side may take
EXTRAS = {"LunarLander": "Box2D", "HalfCheetah": "mujoco"}


def rounds(chosen: dict[str, Task], seeds: int) -> list[Round]:
    """Both sides by turns, seed by seed, so that what the machine does meanwhile hits all worlds alike."""
    made = []
    for seed in range(seeds):
        for name, task in chosen.items():
            job = task | {"seed": seed}
            sides = {side: (sys.executable, str(HERE / f"{side}.py"), job) for side in ("ours", "sb3")}
            made.append(Round("world", name, seed, sides))
    return made


def report(task: Task, pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns of both sides and of the difference, and the median of seconds."""
    returns = {side: [pair[side]["returns"] for pair in pairs] for side in ("ours", "sb3")}
    seconds = {side: round(statistics.median(pair[side]["wall_s"] for pair in pairs), 1) for side in returns}
    engine, steps = f"{task['engine']} {task['algorithm']}", task["steps"]
    figures = compared(returns["ours"], returns["sb3"])
    return {"engine": engine, "steps": steps, "seeds": len(pairs)} | figures | {"seconds": seconds}


def table(figures: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'world':22} {'engine':20} {'steps':>8} {'ours':>26} {'Stable-Baselines3':>26} {'difference':>26}"]
    for name, row in figures.items():
        cells = ["{} [{}, {}]".format(*row[key]) for key in ("ours", "peer", "difference")]
        lines.append(f"{name:22} {row['engine']:20} {row['steps']:8,} " + " ".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.worlds")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="names of worlds, by commas")
    parser.add_argument("--nightly", action="store_true", help="the worlds of hours, too")
    arguments = parser.parse_args()
    there = {name: task for name, task in NIGHTLY.items() if find_spec(EXTRAS[name])} if arguments.nightly else {}
    tasks = WORLDS | there
    names = arguments.only.split(",") if arguments.only else list(tasks)
    if unknown := sorted(set(names) - set(tasks)):
        parser.error(f"--only: {', '.join(unknown)}: choose among {', '.join(tasks)}")
    cores = sorted(os.sched_getaffinity(0))
    outcomes = Lanes(cores, HOURS * 3600).run(rounds({name: tasks[name] for name in names}, arguments.seeds))
    figures = {name: report(tasks[name], pairs) for (_, name), pairs in outcomes.items()}
    print(table(figures), file=sys.stderr)
    lower = [name for name, row in figures.items() if row["difference"][2] < 0]
    print(json.dumps({"worlds": figures, "lower": lower}))
    return 1 if lower else 0


if __name__ == "__main__":
    sys.exit(main())
