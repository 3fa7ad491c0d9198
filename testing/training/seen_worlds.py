"""Small worlds of pixels, of several parts, of masks and of things to remember, each with a known best return."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

STEPS = 8
SIDE = 36


class Sides(gymnasium.Env[Any, Any]):
    """One half of the picture is bright: 1 for choosing that half, in each of 8 steps."""

    observation_space: Space[Any] = Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space: Space[Any] = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.left = STEPS
        return self._next(), {}

    def _next(self) -> Any:
        self.side = int(self.np_random.integers(2))
        return self.show()

    def show(self) -> Any:
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        picture[:, self.side * SIDE // 2 :][:, : SIDE // 2] = 200
        return picture

    def worth(self, action: Any) -> float:
        return float(action == self.side)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        reward = self.worth(action)
        return self._next(), reward, not self.left, False, {}


class Small(Sides):
    observation_space = Box(0, 255, (7, 7, 3), np.uint8)


class Film(Sides):
    observation_space = Box(0, 255, (2, SIDE, SIDE, 3), np.uint8)


class Parts(Sides):
    """The picture, a number of chance, and the half as a word of two, under names that torch takes for itself."""

    observation_space = Dict(
        {"camera": Dict(type=Sides.observation_space), "keys": Box(-1, 1, (1,), np.float32), "word": Discrete(2)}
    )

    def show(self) -> Any:
        return {"camera": {"type": super().show()}, "keys": self.np_random.uniform(-1, 1, 1), "word": self.side}


class Steered(Parts):
    """As Parts, with a number for an action: 1 less its distance from -1 or 1, by the half."""

    action_space = Box(-1, 1, (1,), np.float32)

    def worth(self, action: Any) -> float:
        return 1.0 - abs(2.0 * self.side - 1.0 - float(action[0]))


class Masked(Sides):
    """Four choices, of which two are forbidden in each step and cost 100; of those allowed, the first is worth 1."""

    observation_space = Dict({"action_mask": Box(0, 1, (4,), np.int8), "noise": Box(-1, 1, (1,), np.float32)})
    action_space = Discrete(4)

    def show(self) -> Any:
        self.allowed = np.zeros(4, np.int8)
        self.allowed[self.np_random.choice(4, 2, replace=False)] = 1
        return {"action_mask": self.allowed, "noise": self.np_random.uniform(-1, 1, 1)}

    def worth(self, action: Any) -> float:
        return -100.0 if not self.allowed[action] else float(action == self.allowed.argmax())


class Recall(Sides):
    """The first observation alone says which choice is worth 1 in each of 8 steps."""

    observation_space = Box(-1, 1, (2,), np.float32)

    def _next(self) -> Any:
        first = self.left == STEPS
        if first:
            self.side = int(self.np_random.integers(2))
        return np.array([2 * self.side - 1 if first else 0, first], np.float32)
