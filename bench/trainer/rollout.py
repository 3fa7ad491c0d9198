"""Rollouts with learnloop's PPO; prints one JSON object. Started by compare.py with the product's python.

Log-probabilities are counted, as on the peer's side, and so are values and advantages.
"""

import json
import sys
import time
from typing import Any

import torch

from learnloop_api.kinds.training.algorithms import PpoParameters
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion
from learnloop_trainer.algorithms.ppo import Ppo, prepare
from learnloop_trainer.distributed.collectives import Alone
from learnloop_trainer.floating_point import settle


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Collect `steps` steps after one batch that does not count."""
    settle(1)
    parameters = PpoParameters(environments=task["environments"], horizon=task["horizon"], hidden=task["hidden"])
    members, seed = range(parameters.environments), int(task["seed"])
    environment = make(task["environment"], Split.TRAINING, seed, members)
    occasion = Occasion(seed, task["steps"], len(members), Alone())
    algorithm = Ppo(parameters, environment, occasion, torch.device("cpu"))
    observation, batch = environment.reset(), len(members) * parameters.horizon
    with torch.inference_mode():
        for count in (1, task["steps"] // batch):
            began, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                observation, rollout = algorithm._collect(observation)
                prepare(algorithm.network, algorithm.head, rollout, parameters, occasion)
                algorithm.step += batch
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"wall_s": wall, "cpu_s": cpu, "steps": count * batch}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
