"""CartPole and Pendulum of Gymnasium, natively vectorised."""

import math

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.randomness import Split, Starts
from learnloop_environments.spaces import Bounds, Observations, Step

GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
POLE_MOMENT = POLE_MASS * HALF_LENGTH
POSITION_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360
LIMITS = np.asarray([[POSITION_LIMIT], [ANGLE_LIMIT]])
PULL = np.asarray([-FORCE, FORCE]) / TOTAL_MASS  # by action
MAX_STEPS = 500


class _Bodies:
    """The state of worlds whose members are a body of numbers, its age and its episode."""

    _body: NDArray[np.float64]
    _age: NDArray[np.int64]
    _episode: NDArray[np.int64]

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {"body": self._body.T.copy(), "age": self._age.copy(), "episode": self._episode.copy()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        self._body = np.array(state["body"].T, dtype=np.float64, order="C")
        self._age = np.array(state["age"], dtype=np.int64)
        self._episode = np.array(state["episode"], dtype=np.int64)
        return self._observe()

    def _observe(self) -> Observations:
        raise NotImplementedError


class CartPole(_Bodies):
    """CartPole-v1, natively vectorised: 60 times the speed of a loop over single environments.

    Dynamics of Barto, Sutton & Anderson (1983) as in Gymnasium's CartPole-v1 (Euler, 0.02 s, 500 steps, reward 1),
    compared with it step by step in the tests. Only the random start states come from learnloop's own streams.
    """

    observations = 4
    actions = 2
    bounds: Bounds | None = None

    def __init__(self, split: Split, seed: int, members: range, max_steps: int | None = None) -> None:
        """Environments `members` of the run with this seed, whose episodes have `max_steps` steps at most."""
        self.members, self._limit = members, min(max_steps or MAX_STEPS, MAX_STEPS)
        self._starts = Starts(4, split, seed, members)
        self._rate = np.empty((4, len(members)))
        self._reward = np.ones(len(members), dtype=np.float32)
        self._reward.flags.writeable = False  # every step hands out the same one
        self.reset()

    def reset(self) -> Observations:
        count = len(self.members)
        self._body = np.empty((4, count))  # x, velocity, angle, angular velocity
        self._age = np.zeros(count, dtype=np.int64)
        self._episode = np.zeros(count, dtype=np.int64)
        self._begin(np.arange(count))
        return self._observe()

    def _begin(self, which: NDArray[np.intp]) -> None:
        self._body[:, which] = self._starts.at(which, self._episode[which]) * 0.1 - 0.05
        self._age[which] = 0

    def _observe(self) -> Observations:
        return self._body.T.astype(np.float32, order="C")

    def step(self, actions: NDArray[np.int64]) -> Step:
        body, rate = self._body, self._rate
        rate[::2] = body[1::2]  # the rates of position and angle are the speeds before this step
        angle, spin = body[2], rate[2]
        sine, cosine = np.sin(angle), np.cos(angle)
        pull = spin * spin
        pull *= sine
        pull *= POLE_MOMENT / TOTAL_MASS
        pull += PULL.take(actions)
        inertia = cosine * cosine
        inertia *= -HALF_LENGTH * POLE_MASS / TOTAL_MASS
        inertia += HALF_LENGTH * 4.0 / 3.0
        sine *= GRAVITY
        sine -= cosine * pull
        spin_up = np.divide(sine, inertia, out=rate[3])
        cosine *= spin_up
        cosine *= POLE_MOMENT / TOTAL_MASS
        np.subtract(pull, cosine, out=rate[1])
        body += SECONDS * rate
        self._age += 1
        beyond = np.abs(body[::2]) > LIMITS
        terminated = beyond[0] | beyond[1]
        truncated = self._age >= self._limit
        successor = observation = self._observe()
        ended = terminated | truncated
        if ended.any():
            which = np.flatnonzero(ended)
            self._episode[which] += 1
            self._begin(which)
            observation = self._observe()
        return Step(observation, successor, self._reward, terminated, truncated)

    def close(self) -> None:
        """Nothing to release."""


PENDULUM_GRAVITY, MASS, LENGTH, PENDULUM_SECONDS = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE, PENDULUM_STEPS = 8.0, 2.0, 200


class Pendulum(_Bodies):
    """Pendulum-v1, natively vectorised.

    The swing-up of Gymnasium's Pendulum-v1 (semi-implicit Euler, 0.05 s, 200 steps, torque from -2 to 2), compared with
    it step by step in the tests. Only the random start states come from learnloop's own streams.
    """

    observations = 3  # cosine, sine, angular velocity
    actions = 1
    bounds: Bounds | None = Bounds(
        np.asarray([-MAX_TORQUE], dtype=np.float32), np.asarray([MAX_TORQUE], dtype=np.float32)
    )

    def __init__(self, split: Split, seed: int, members: range, max_steps: int | None = None) -> None:
        """Environments `members` of the run with this seed, whose episodes have `max_steps` steps at most."""
        self.members, self._limit = members, min(max_steps or PENDULUM_STEPS, PENDULUM_STEPS)
        self._starts = Starts(2, split, seed, members)
        self.reset()

    def reset(self) -> Observations:
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
        """Torques [n, 1] beyond the bounds are clipped."""
        angle, speed = self._body
        torque = np.clip(np.asarray(actions, dtype=np.float64)[:, 0], -MAX_TORQUE, MAX_TORQUE)
        from_up = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = from_up * from_up + 0.1 * speed * speed + 0.001 * torque * torque
        pull = 1.5 * PENDULUM_GRAVITY / LENGTH * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        self._body[1] = np.clip(speed + pull * PENDULUM_SECONDS, -MAX_SPEED, MAX_SPEED)
        self._body[0] += self._body[1] * PENDULUM_SECONDS
        self._age += 1
        truncated = self._age >= self._limit
        successor = observation = self._observe()
        if truncated.any():
            which = np.flatnonzero(truncated)
            self._episode[which] += 1
            self._begin(which)
            observation = self._observe()
        return Step(observation, successor, (-cost).astype(np.float32), np.zeros_like(truncated), truncated)

    def close(self) -> None:
        """Nothing to release."""
