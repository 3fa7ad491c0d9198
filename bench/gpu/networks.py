"""PPO and SAC with narrow and wide networks, against Stable-Baselines3: equal work on a lane's device."""

import json
from pathlib import Path

from bench.gpu.lanes import Lane, Outcome
from bench.gpu.tasks import TASKS
from bench.trainer.statistics_of import iqm

TRAINER = Path(__file__).resolve().parent.parent / "trainer"
SIDES = {"ours": "ours.py", "sb3": "sb3.py"}
WIDE = 256
"""Layers wider than this have all of the lane's cores on both sides, as the trainer's own rule is; others have one."""


def measured(lane: Lane, pythons: dict[str, str]) -> Outcome:
    """Steps a second, updates and return by task and side."""
    outcomes: Outcome = {}
    for name, task in TASKS.items():
        threads = len(lane.cores) if max(task["ours"]["hidden"]) > WIDE else 1
        job = task | {"device": lane.device, "threads": threads, "until_solved": False, "episodes": 20, "seed": 0}
        for side, program in SIDES.items():
            run = lane.run_json(pythons[side], "-W", "ignore", str(TRAINER / program), json.dumps(job))
            if "failed" not in run:
                figures = {"steps_per_s": round(run["steps"] / run["wall_s"], 1), "updates": run["updates"]}
                run = figures | {"return": round(iqm(run["returns"]), 1)}
            outcomes.setdefault(name, {})[side] = run
            print(f"{name}, {side} on {lane.device}: {run}", flush=True)
    return outcomes
