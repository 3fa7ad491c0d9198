"""The bounded queue of fragments between samplers and learner, and the newest policy.

Samplers that are faster than the learner wait before they play, not after, so they play the newest policy.
A fragment begins only while the rows that are played, wait and are learned from fill no more than two updates, or one
and all environments. So steps are about one version old when the learner takes them. Fu et al. (2025),
arXiv 2505.24298, bound staleness in the same manner. A replay buffer takes steps of any age: there the queue's length
alone holds samplers back.

An environment that hangs ends its sampler (wrappers.Watchdog), whose fragment another one then begins.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Sampling
from learnloop_environments.base import Observations, VectorEnvironment
from learnloop_trainer.store.run_store import Arrays

LARGEST = 1e9
"""The largest number of an observation, an action or a reward: its square must stay far from infinity."""


class RefusedFragment(Exception):
    """A message is not one that the learner asked for. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Leading axes [steps, environments] of fragments and blocks."""

    observation: Observations  # [..., observations], as the environment gives it
    successor: Observations  # [..., observations], the true next state
    action: NDArray[np.generic]  # as the algorithm keeps them
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_prob: NDArray[np.float32]  # of the action under the policy that took it; 0 where no correction needs it
    returned: NDArray[np.float32]  # the return of the episode that ended in this step; 0 elsewhere

    def arrays(self) -> Arrays:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a learner's fragments.

    Attributes:
        steps: of each environment.
        observations: numbers of one.
        actions: how many there are to choose from; 0: they are numbers.
        numbers: of one action; 0: it is a choice, int64.
        choices: of actions that begin with a choice, how many; 0 elsewhere.
        corrected: log-probabilities are needed.
    """

    steps: int
    observations: int
    actions: int
    numbers: int
    choices: int
    corrected: bool

    @classmethod
    def of(cls, environment: VectorEnvironment, steps: int, *, corrected: bool) -> "Shape":
        bounds = environment.bounds
        if bounds is None:
            return cls(steps, environment.observations, environment.actions, 0, 0, corrected)
        return cls(steps, environment.observations, 0, environment.actions, bounds.choices, corrected)

    def room(self, environments: int) -> Steps:
        lead = (self.steps, environments)
        reward, log_prob, returned = np.zeros((3, *lead), dtype=np.float32)
        observation, successor = np.zeros((2, *lead, self.observations), dtype=np.float32)
        terminated, truncated = np.zeros((2, *lead), dtype=np.bool_)
        action = np.zeros((*lead, self.numbers), np.float32) if self.numbers else np.zeros(lead, np.int64)
        return Steps(observation, successor, action, reward, terminated, truncated, log_prob, returned)

    def most_bytes(self, environments: int) -> int:
        """Of a fragment's message, with the names of its arrays and a sampler's identity."""
        return 16_384 + sum(array.nbytes for array in self.room(environments).arrays().values())

    def checked(self, arrays: Mapping[str, NDArray[np.generic]], environments: int) -> Steps:
        """The steps in these arrays; raises RefusedFragment where names, types, shapes or values are wrong."""
        wanted = self.room(environments).arrays()
        if set(arrays) != set(wanted):
            odd = sorted(set(arrays) ^ set(wanted))
            raise RefusedFragment(f"arrays {', '.join(odd)[:200]} are missing or not asked for")
        for name, model in wanted.items():
            array = arrays[name]
            if array.dtype != model.dtype or array.shape != model.shape:
                raise RefusedFragment(
                    f"{name} is {array.dtype} {list(array.shape)}, the learner needs {model.dtype} {list(model.shape)}"
                )
            if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise RefusedFragment(f"{name} has a value that is neither true nor false")
            if array.dtype == np.float32 and not bool((np.abs(array) <= LARGEST).all()):  # NaN compares as False
                raise RefusedFragment(
                    f"{name} has a number that is not finite or larger than {LARGEST:.0e}; check the environment"
                )
        steps = Steps(**arrays)  # type: ignore[arg-type]
        chosen: NDArray[Any] = steps.action if not self.numbers else steps.action[..., 0]
        choices = self.actions or self.choices
        if choices and bool(((chosen < 0) | (chosen >= choices) | (chosen != np.floor(chosen))).any()):
            raise RefusedFragment(f"action has a choice that is not a whole number from 0 to {choices - 1}")
        return steps


@dataclass(frozen=True, slots=True)
class SamplerPolicy:
    """The policy that samplers play with."""

    version: int  # counted from 1 by each process of the learner
    step: int  # environment steps learned from before it
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one update; steps [steps, rows]."""

    steps: Steps
    returns: tuple[float, ...]  # of the episodes that ended in them


@dataclass(eq=False, slots=True)
class Seat:
    """One sampler. `playing`: it has begun a fragment that it has not sent yet."""

    environments: int
    playing: bool = False


class Intake:
    """Fragments by the environment, each a row of `shape.steps` steps. Only `take` waits."""

    def __init__(self, shape: Shape, rows: int, most_staleness: int) -> None:
        self.shape, self.rows, self._most_staleness = shape, rows, most_staleness
        self.policy, self.over = SamplerPolicy(0, 0, {}), False
        self.on_room: Callable[[], None] = lambda: None  # called when `begin` may succeed again
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Steps, int]] = deque()  # version, fragment, its environment
        self._seats: set[Seat] = set()
        self._learning = 0  # rows taken
        self._most_seats = self._dropped = self._refused = 0
        self._staleness, self._used = 0, 0  # summed over rows, and how many
        self._newest_staleness = 0.0

    def publish(self, arrays: Mapping[str, NDArray[np.generic]], step: int) -> None:
        copies = {name: array.copy() for name, array in arrays.items()}
        with self._changed:
            self.policy = SamplerPolicy(self.policy.version + 1, step, copies)
            self._learning = 0
        self.on_room()

    def finish(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()
        self.on_room()

    def join(self, environments: int) -> Seat:
        """Admit a sampler, which plays by the newest policy from now on."""
        with self._changed:
            seat = Seat(environments, playing=True)
            self._seats.add(seat)
            self._most_seats = max(self._most_seats, len(self._seats))
        return seat

    def leave(self, seat: Seat) -> None:
        """Forget a sampler, and the fragment that it had begun."""
        with self._changed:
            self._seats.discard(seat)

    def begin(self, seat: Seat) -> bool:
        """Let a sampler begin a fragment. False: enough is under way."""
        with self._changed:
            if self.over or not self._room():
                return False
            seat.playing = True
        return True

    def _room(self) -> bool:
        if not self.shape.corrected:
            return len(self._waiting) < self.rows
        played = sum(seat.environments for seat in self._seats if seat.playing)
        environments = sum(seat.environments for seat in self._seats)
        most = min(self.rows + max(self.rows, environments), self.rows * (1 + self._most_staleness))
        return len(self._waiting) + played + self._learning < most

    def refuse(self) -> None:
        with self._changed:
            self._refused += 1

    def offer(self, seat: Seat, version: int, steps: Steps) -> None:
        with self._changed:
            seat.playing = False
            self._waiting.extend((version, steps, index) for index in range(steps.reward.shape[1]))
            self._drop_stale()
            self._changed.notify_all()

    def take(self, patience: float) -> Block | None:
        """`rows` rows that are not too old; None where there are fewer within `patience` seconds: they stay."""
        end = time.monotonic() + patience
        with self._changed:
            self._learning = 0  # the rows taken before are learned from, even if nothing was published since
            self._drop_stale()
            while len(self._waiting) < self.rows:
                left = end - time.monotonic()
                if left <= 0 or self.over:
                    break
                self.on_room()
                self._changed.wait(left)
            if len(self._waiting) < self.rows:
                self.on_room()
                return None
            rows = [self._waiting.popleft() for _ in range(self.rows)]
            self._learning = self.rows
            ages = [self.policy.version - version for version, _, _ in rows]
            self._staleness, self._used = self._staleness + sum(ages), self._used + len(ages)
            self._newest_staleness = sum(ages) / len(ages)
        self.on_room()
        names = rows[0][1].arrays()
        steps = Steps(
            **{name: np.stack([getattr(played, name)[:, index] for _, played, index in rows], axis=1) for name in names}
        )
        ended = steps.terminated | steps.truncated
        return Block(steps, tuple(float(value) for value in steps.returned[ended]))

    def _drop_stale(self) -> None:
        """Fragments may be late, and versions change between two calls of `take`."""
        fresh = [item for item in self._waiting if self.policy.version - item[0] <= self._most_staleness]
        self._dropped += (len(self._waiting) - len(fresh)) * self.shape.steps
        self._waiting = deque(fresh)

    def figures(self) -> dict[str, float]:
        with self._changed:
            return {
                "samplers": float(len(self._seats)),
                "staleness": self._newest_staleness,
                "dropped_steps": float(self._dropped),
                "refused_fragments": float(self._refused),
            }

    def summary(self) -> Sampling:
        with self._changed:
            return Sampling(
                most_samplers=self._most_seats,
                mean_staleness=self._staleness / max(1, self._used),
                dropped_steps=self._dropped,
                refused_fragments=self._refused,
            )
