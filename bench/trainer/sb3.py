"""The same run with Stable-Baselines3; prints one JSON object. Started by compare.py with the peers' own python."""

import json
import sys
import time
from typing import Any

import gymnasium
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "dqn": DQN, "sac": SAC}


class Solved(BaseCallback):  # type: ignore[misc]  # the peers' packages are in an environment of their own
    """Notes the moment the newest `window` training episodes have the wanted mean return."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.task, self.began = task, 0.0
        self.seconds: float | None = None
        self.recent: list[float] = []

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        fresh = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if not fresh or self.seconds is not None:
            return True
        self.recent = (self.recent + fresh)[-self.task["window"] :]
        if len(self.recent) < self.task["window"] or sum(self.recent) / len(self.recent) < self.task["threshold"]:
            return True
        self.seconds = time.perf_counter() - self.began
        return not self.task["until_solved"]


def falling(first: float) -> Any:
    """A learning rate that falls linearly to zero, as ours does."""
    return lambda left: first * left


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Train, stop early when the task is solved and asked to, evaluate; on `device` (cpu) with `threads` (1)."""
    torch.set_num_threads(task.get("threads", 1))
    options = dict(task["sb3"])
    environments, hidden = options.pop("n_envs"), options.pop("hidden")
    relu = task["algorithm"] != "ppo"
    if options.pop("linear_rate", False):
        options["learning_rate"] = falling(options["learning_rate"])
    environment = make_vec_env(task["environment"], n_envs=environments, seed=task["seed"], vec_env_cls=DummyVecEnv)
    model = ALGORITHMS[task["algorithm"]](
        "MlpPolicy",
        environment,
        seed=task["seed"],
        device=task.get("device", "cpu"),
        policy_kwargs={"net_arch": hidden, "activation_fn": torch.nn.ReLU if relu else torch.nn.Tanh},
        **options,
    )
    watch = Solved(task)
    began, cpu = time.perf_counter(), time.process_time()
    model.learn(task["steps"], callback=watch, log_interval=None)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    judge = make_vec_env(task["environment"], n_envs=16, seed=task["seed"] + 1_000_003)
    returns, _ = evaluate_policy(model, judge, task["episodes"], deterministic=True, return_episode_rewards=True)
    updates = model._n_updates
    if task["algorithm"] == "ppo":  # counts epochs; every epoch has as many updates as minibatches
        updates *= options["n_steps"] * environments // options["batch_size"]
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "steps": model.num_timesteps,
        "updates": updates,
        "solved_s": watch.seconds,
        "returns": [float(value) for value in returns],
        "gymnasium": gymnasium.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
