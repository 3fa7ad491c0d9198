"""APPO of RLlib on the same slow world, in the peers' environment: `python -m bench.actors.rllib_appo RUNNERS STEPS`.

Asynchronous PPO with V-trace and bounded staleness is what samplers do here. One environment for each runner, pieces of
16 steps and updates of 128 steps, as in `bench.actors`. RLlib's own settings stand for everything else. The last line
is JSON: steps a second from the first steps that were seen to the last, and how long it took until the first were.
"""

import json
import sys
import time
from typing import Any

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.tune.registry import register_env

from bench.actors.slow_world import SlowCartPole

PIECE, UPDATE = 16, 128
MOST_SECONDS = 300.0  # until the first steps are there
SAMPLED = "num_env_steps_sampled_lifetime"


def configured(runners: int) -> Any:
    """No more processes than asked for: on two processors another one that only passes batches on is a loss."""
    settings = APPOConfig().environment("slow").reporting(min_time_s_per_iteration=1)
    settings = settings.env_runners(num_env_runners=runners, num_envs_per_env_runner=1, rollout_fragment_length=PIECE)
    settings = settings.learners(num_learners=0, num_gpus_per_learner=0, num_aggregator_actors_per_learner=0)
    return settings.training(train_batch_size_per_learner=UPDATE)


def main(runners: int, steps: int) -> dict[str, float]:
    """Train until so many steps were sampled; raises RuntimeError where none come."""
    began = time.monotonic()
    register_env("slow", lambda _: SlowCartPole())
    algorithm = configured(runners).build_algo()
    first: tuple[float, int] | None = None
    while True:
        told = algorithm.train()
        now, count = time.monotonic(), int(told.get(SAMPLED, 0))
        if count and first is None:
            first = now, count
        if first is None and now - began > MOST_SECONDS:
            raise RuntimeError(f"no steps in {MOST_SECONDS:.0f} s")
        if first is not None and count - first[1] >= steps:
            algorithm.stop()
            return {"steps_per_second": (count - first[1]) / (now - first[0]), "seconds_to_first": first[0] - began}


if __name__ == "__main__":
    # More of its processors than there are: they sleep nearly all the time.
    ray.init(num_cpus=64, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    found = main(*map(int, sys.argv[1:3]))
    ray.shutdown()
    print(json.dumps(found))
