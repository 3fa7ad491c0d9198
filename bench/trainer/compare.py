"""learnloop's trainer beside Stable-Baselines3, pair by pair; the last line printed is one JSON object.

Every run is a process of its own, pinned to one core and one thread; the two sides take turns (A B A B …), so that
whatever else the machine does hits both. Ratios are formed pair by pair; reported are their medians.

LEARNLOOP_BENCH_SEEDS (5), LEARNLOOP_BENCH_STEPS (1.0, factor on the steps), LEARNLOOP_BENCH_ONLY (ppo,dqn,sac).
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tasks import SOLVE, WORK, Task

HERE = Path(__file__).resolve().parent
SECONDS = 600
Outcome = dict[str, Any]


def core() -> int:
    """The core all runs are pinned to: the last one this process may use."""
    return max(os.sched_getaffinity(0))


def run(python: str, side: str, task: Task) -> Outcome:
    """One training with `side` in its own process."""
    environ = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environ |= {"CUDA_VISIBLE_DEVICES": ""}
    command = ["taskset", "-c", str(core()), python, str(HERE / f"{side}.py"), json.dumps(task)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed on {task['algorithm']}:\n{done.stderr[-2000:]}")
    outcome: Outcome = json.loads(done.stdout.strip().splitlines()[-1])
    return outcome


def iqm(returns: list[float]) -> float:
    """Interquartile mean (Agarwal et al., 2021, arXiv 2108.13264)."""
    cut = len(returns) // 4
    return statistics.fmean(sorted(returns)[cut : len(returns) - cut])


def pairs(task: Task, seeds: int, pythons: dict[str, str], *, until_solved: bool) -> list[dict[str, Outcome]]:
    """Both sides for each seed, taking turns."""
    results = []
    for seed in range(seeds):
        job = task | {"seed": seed, "until_solved": until_solved}
        steps = task["steps"] if isinstance(task["steps"], dict) else dict.fromkeys(pythons, task["steps"])
        results.append({side: run(pythons[side], side, job | {"steps": steps[side]}) for side in ("ours", "sb3")})
        shown = {
            side: f"{out['steps'] / out['wall_s']:,.0f} steps/s, {out['updates']} updates, "
            f"solved {out['solved_s'] and round(out['solved_s'], 1)} s, return {iqm(out['returns']):.0f}"
            for side, out in results[-1].items()
        }
        print(f"{task['algorithm']} {'solve' if until_solved else 'work'} seed {seed}: {shown}", flush=True)
    return results


def median_ratio(values: list[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def judge(algorithm: str, seeds: int, factor: float, pythons: dict[str, str]) -> dict[str, Any]:
    """Speed and final quality at equal work, then time to solve."""
    task = WORK[algorithm]
    work = pairs(task | {"steps": int(task["steps"] * factor)}, seeds, pythons, until_solved=False)
    speed = {side: [p[side]["steps"] / p[side]["wall_s"] for p in work] for side in pythons}
    cpu = [(p["ours"]["steps"] / p["ours"]["cpu_s"]) / (p["sb3"]["steps"] / p["sb3"]["cpu_s"]) for p in work]
    steps_ratio = median_ratio([a / b for a, b in zip(speed["ours"], speed["sb3"], strict=True)])
    report: dict[str, Any] = {
        "steps_ratio_sb3": round(steps_ratio["median"], 2),
        "steps_ratio_range": [round(steps_ratio["low"], 2), round(steps_ratio["high"], 2)],
        "steps_ratio_cpu_time": round(statistics.median(cpu), 2),
        "steps_per_s": round(statistics.median(speed["ours"])),
        "steps_per_s_sb3": round(statistics.median(speed["sb3"])),
        "updates": work[0]["ours"]["updates"],
        "updates_sb3": work[0]["sb3"]["updates"],
        "iqm": round(iqm([r for p in work for r in p["ours"]["returns"]]), 1),
        "iqm_sb3": round(iqm([r for p in work for r in p["sb3"]["returns"]]), 1),
        "seeds": seeds,
    }
    if algorithm in SOLVE:
        report |= solve(algorithm, seeds, pythons)
    return report


def solve(algorithm: str, seeds: int, pythons: dict[str, str]) -> dict[str, Any]:
    """Seconds until the newest training episodes have the wanted mean; a run that never gets there counts whole."""
    results = pairs(SOLVE[algorithm], seeds, pythons, until_solved=True)
    took = {side: [p[side]["solved_s"] or p[side]["wall_s"] for p in results] for side in pythons}
    ratios = [b / a for a, b in zip(took["ours"], took["sb3"], strict=True)]
    return {
        "solve_ratio_sb3": round(statistics.median(ratios), 2),
        "solve_s": round(statistics.median(took["ours"]), 2),
        "solve_s_sb3": round(statistics.median(took["sb3"]), 2),
        "solved": sum(p["ours"]["solved_s"] is not None for p in results),
        "solved_sb3": sum(p["sb3"]["solved_s"] is not None for p in results),
    }


def main() -> None:
    """Compare everything asked for."""
    product, peer = sys.argv[1:3]
    seeds = int(os.environ.get("LEARNLOOP_BENCH_SEEDS", "5"))
    factor = float(os.environ.get("LEARNLOOP_BENCH_STEPS", "1.0"))
    only = os.environ.get("LEARNLOOP_BENCH_ONLY", ",".join(WORK)).split(",")
    pythons = {"ours": product, "sb3": peer}
    load = os.getloadavg()[0]
    report: dict[str, Any] = {algorithm: judge(algorithm, seeds, factor, pythons) for algorithm in only}
    report["machine"] = {
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
