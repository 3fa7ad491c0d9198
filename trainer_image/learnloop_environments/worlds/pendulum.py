"""Pendulum-v1, natively vectorised.

The swing-up of Gymnasium's Pendulum-v1 (semi-implicit Euler, 0.05 s, 200 steps, torque from -2 to 2), compared with it
step by step in the tests. Only the random start states come from learnloop's own streams.
"""

import math

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations, Step
from learnloop_environments.randomness import Split, Starts

GRAVITY, MASS, LENGTH, SECONDS = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE, MAX_STEPS = 8.0, 2.0, 200


class Pendulum:
    """n pendulums, each with a motor too weak to lift it at once."""

    observations = 3  # cosine, sine, angular velocity
    actions = 1
    bounds: Bounds | None = Bounds(
        np.asarray([-MAX_TORQUE], dtype=np.float32), np.asarray([MAX_TORQUE], dtype=np.float32)
    )

    def __init__(self, split: Split, seed: int, members: range) -> None:
        """Environments `members` of the run with this seed."""
        self.members = members
        self._starts = Starts(2, split, seed, members)
        self.reset()

    def reset(self) -> Observations:
        """See VectorEnvironment.reset."""
        count = len(self.members)
        self._body = np.empty((2, count))  # angle (0 is up), angular velocity
        self._age = np.zeros(count, dtype=np.int64)
        self._episode = np.zeros(count, dtype=np.int64)
        self._begin(np.arange(count))
        return self._observe()

    def _begin(self, which: NDArray[np.intp]) -> None:
        self._body[:, which] = (2 * self._starts.at(which, self._episode[which]) - 1) * [[math.pi], [1.0]]
        self._age[which] = 0

    def _observe(self) -> Observations:
        angle, speed = self._body
        return np.stack((np.cos(angle), np.sin(angle), speed), axis=1).astype(np.float32)

    def step(self, actions: NDArray[np.generic]) -> Step:
        """See VectorEnvironment.step; torques [n, 1] beyond the bounds are clipped."""
        angle, speed = self._body
        torque = np.clip(np.asarray(actions, dtype=np.float64)[:, 0], -MAX_TORQUE, MAX_TORQUE)
        from_up = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = from_up * from_up + 0.1 * speed * speed + 0.001 * torque * torque
        pull = 1.5 * GRAVITY / LENGTH * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        self._body[1] = np.clip(speed + pull * SECONDS, -MAX_SPEED, MAX_SPEED)
        self._body[0] += self._body[1] * SECONDS
        self._age += 1
        truncated = self._age >= MAX_STEPS
        successor = observation = self._observe()
        if truncated.any():
            which = np.flatnonzero(truncated)
            self._episode[which] += 1
            self._begin(which)
            observation = self._observe()
        return Step(observation, successor, (-cost).astype(np.float32), np.zeros_like(truncated), truncated)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """See VectorEnvironment.state."""
        return {"body": self._body.T.copy(), "age": self._age.copy(), "episode": self._episode.copy()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """See VectorEnvironment.restore."""
        self._body = np.array(state["body"].T, dtype=np.float64, order="C")
        self._age = np.array(state["age"], dtype=np.int64)
        self._episode = np.array(state["episode"], dtype=np.int64)
        return self._observe()

    def close(self) -> None:
        """Nothing to release."""
