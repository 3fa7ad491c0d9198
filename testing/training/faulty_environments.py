"""Environments as users write them on a bad day; each behaves for GOOD steps first.

A run names one as `faulty_environments:Name`.
"""

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

GOOD = 300


class Calm(gymnasium.Env[Any, Any]):
    """Nothing happens, and that is right."""

    observation_space: gymnasium.Space[Any] = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, reward = np.full(3, 0.5, np.float32), 1.0
        if self.steps > GOOD:
            observation, reward = self.trouble(observation, reward)
        return observation, reward, self.steps % 20 == 0, False, {}

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        """The fault."""
        return observation, reward


class NanReward(Calm):
    """0 / 0."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        return observation, float("nan")


class NanObservation(Calm):
    """A sensor that fails."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        return observation * np.nan, reward


class HugeReward(Calm):
    """An exploding loss."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        return observation, 3e38


class Raises(Calm):
    """A division by zero."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        raise ZeroDivisionError("the simulated plant has no valves")


class Closed(Calm):
    """A simulator whose licence, outside its code, has run out: it raises while LICENCE is `expired`."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        if os.environ.get("LICENCE") == "expired":
            raise PermissionError("the licence has expired")
        return observation, reward


class Hangs(Calm):
    """A simulator that waits for a licence."""

    def trouble(self, observation: Any, reward: float) -> tuple[Any, float]:
        time.sleep(3600)
        return observation, reward


class WrongSpace(Calm):
    """Observations of another shape than a vector."""

    observation_space = Dict({"camera": Box(0, 1, (3,), np.float32)})
