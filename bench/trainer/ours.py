"""One run of learnloop's trainer; prints one JSON object. Started by compare.py with the product's python."""

import json
import sys
import time
from typing import Any

import numpy as np
import torch

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation import Policy, play
from learnloop_trainer.export import OnnxPolicy, build
from learnloop_trainer.floating_point import settle
from learnloop_trainer.training_run.reported_figures import no_episodes


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Train, stop early when the task is solved and asked to, evaluate; on `device` (cpu) with `threads` (1)."""
    settle(task.get("threads", 1))
    parameters = hyperparameters(task["algorithm"], **task["ours"])
    members, seed = range(parameters.environments), int(task["seed"])
    environment = make(task["environment"], Split.TRAINING, seed, members)
    occasion = Occasion(seed, task["steps"], len(members), Alone())
    algorithm = learner(parameters, environment, occasion, torch.device(task.get("device", "cpu")))
    observation, episodes = environment.reset(), no_episodes(len(members))
    solved: float | None = None
    began, cpu = time.perf_counter(), time.process_time()
    while algorithm.step < task["steps"]:
        observation, experiences = algorithm.iterate(observation)
        for experience in experiences:
            episodes.note(experience.reward, experience.ended)
        window = list(episodes.recent)[-task["window"] :]
        if solved is None and len(window) == task["window"] and np.mean(window) >= task["threshold"]:
            solved = time.perf_counter() - began
            if task["until_solved"]:
                break
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    head, activation = traits_of(task["algorithm"]).network
    bounds = environment.bounds
    body = build(algorithm.network.arrays(), head, activation, {}, bounds)
    policy: Policy = OnnxPolicy(body, environment.observations, environment.actions, continuous=bounds is not None)
    returns, _ = play(task["environment"], policy, seed, task["episodes"], lambda done: None)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "steps": algorithm.step,
        "updates": algorithm.network.updates,
        "solved_s": solved,
        "returns": returns.tolist(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
