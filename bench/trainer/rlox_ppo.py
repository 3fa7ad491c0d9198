"""PPO with rlox (environment, buffer and advantages in Rust); prints one JSON object. Started by compare.py."""

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from rlox.algorithms.ppo import PPO


def returns(model: PPO, task: dict[str, Any]) -> list[float]:
    """Of greedy episodes in Gymnasium's environment."""
    world = gymnasium.make(task["environment"])
    totals = []
    for episode in range(task["episodes"]):
        observation, _ = world.reset(seed=task["seed"] + 1_000_003 + episode)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = world.step(int(model.predict(np.asarray(observation))))
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    return totals


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Train, evaluate."""
    torch.set_num_threads(1)
    torch.manual_seed(task["seed"])
    model = PPO(task["environment"], seed=task["seed"], **task["rlox"])
    began, cpu = time.perf_counter(), time.process_time()
    model.train(task["steps"])
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "steps": task["steps"],
        "updates": model._global_step,
        "returns": returns(model, task),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
