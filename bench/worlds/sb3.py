"""The same world by Stable-Baselines3 alone; prints one JSON object. Started by __main__.py.

Gymnasium's worlds are its own, with flattened observations; ours are the same arrays behind its VecEnv. A team's agents
share one policy, each a row of the batch. The held-out episodes are those of the other side.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_environments.simulation import Conditions
from learnloop_environments.spaces import ActionSpace, agents
from learnloop_trainer.evaluation import play

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "dqn": DQN, "sac": SAC}


class Rows(VecEnv):  # type: ignore[misc]
    """Each agent of each copy of a world of ours as an environment of its own."""

    def __init__(self, task: dict[str, Any], count: int) -> None:
        conditions = Conditions(task.get("level"))
        self._inner = make(task["environment"], Split.TRAINING, task["seed"], range(count), conditions)
        self.members = agents(self._inner)
        observations = Box(-np.inf, np.inf, (self._inner.observations,), np.float32)
        super().__init__(count * self.members, observations, ActionSpace.of(self._inner).gymnasium())
        self._shape = (count, self.members) if self.members > 1 else (count,)
        self._chosen: Any = None

    def reset(self) -> NDArray[Any]:
        return self._flat(self._inner.reset())

    def step_async(self, actions: NDArray[Any]) -> None:
        self._chosen = actions.reshape(*self._shape, *actions.shape[1:])

    def step_wait(self) -> Any:
        step = self._inner.step(self._chosen)
        ended, late = (np.repeat(flag, self.members) for flag in (step.terminated | step.truncated, step.truncated))
        infos: list[dict[str, Any]] = [{} for _ in ended]
        last = self._flat(step.successor)
        for index in np.flatnonzero(ended):
            infos[index] = {"terminal_observation": last[index], "TimeLimit.truncated": bool(late[index])}
        return self._flat(step.observation), step.reward.reshape(-1), ended, infos

    def _flat(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(-1, self._inner.observations)

    def close(self) -> None:
        self._inner.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Greedy:
    """Its deterministic policy, before the other side's evaluation."""

    def __init__(self, model: Any, normal: VecNormalize | None) -> None:
        self._model, self._normal = model, normal

    def act(self, observation: NDArray[np.float32]) -> NDArray[Any]:
        rows = observation if self._normal is None else self._normal.normalize_obs(observation)
        actions: NDArray[Any] = self._model.predict(rows, deterministic=True)[0]
        return actions


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Train, and play held-out episodes."""
    torch.set_num_threads(1)
    options, name, seed = dict(task["sb3"]), task["environment"], int(task["seed"])
    count, normal = options.pop("n_envs", 1), options.pop("normalize", False)
    members, environment = 1, None
    if ":" in name:
        environment = Rows(task, count)
        members = environment.members
    else:
        environment = make_vec_env(name, n_envs=count, seed=seed, wrapper_class=FlattenObservation)
    if normal:
        environment = VecNormalize(environment, gamma=options.get("gamma", 0.99))
    if options.pop("linear_rate", False):
        first = options["learning_rate"]
        options["learning_rate"] = lambda left: first * left
    kind = ALGORITHMS[task.get("sb3_algorithm", task["algorithm"])]
    began = time.perf_counter()
    model = kind("MlpPolicy", environment, seed=seed, device="cpu", **options)
    model.learn(task["steps"] * members, log_interval=None)
    wall = time.perf_counter() - began
    conditions = Conditions(task.get("level"))
    returns, _ = play(
        lambda held_out: make(name, Split.HELD_OUT, seed, held_out, conditions),
        Greedy(model, environment if normal else None),
        seed,
        task["episodes"],
        lambda finished: None,
    )
    steps = model.num_timesteps // members
    return {"wall_s": wall, "steps": steps, "updates": model._n_updates, "returns": returns.tolist()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
