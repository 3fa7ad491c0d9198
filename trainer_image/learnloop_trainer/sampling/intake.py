"""The bounded queue of fragments between samplers and learner, and the newest policy.

Samplers that are faster than the learner wait before they play, not after, so they play the newest policy.
A fragment begins only while the rows that are played, wait and are learned from fill no more than two updates, or one
and all environments. So steps are about one version old when the learner takes them. Fu et al. (2025),
arXiv 2505.24298, bound staleness in the same manner. A replay buffer takes steps of any age: there the queue's length
alone holds samplers back.

An environment that hangs keeps its connection. A fragment that takes far longer than the others no longer counts as
played, so that another begins in its place; when it comes after all, it is taken like any other.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Sampling
from learnloop_trainer.sampling.fragments import Shape, Steps
from learnloop_trainer.store.run_store import Arrays

PATIENCE_SECONDS, PATIENCE_TIMES, REMEMBERED_FRAGMENTS = 20.0, 10.0, 64
"""A fragment is overdue after so many seconds, and so many times the median of the newest fragments."""


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
    """One sampler. `began`: when it began the fragment that it has not sent yet."""

    environments: int
    began: float | None

    @property
    def playing(self) -> bool:
        return self.began is not None


class Intake:
    """Fragments by the environment, each a row of `shape.steps` steps. Only `take` waits."""

    def __init__(
        self, shape: Shape, rows: int, most_staleness: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.shape, self.rows, self._most_staleness, self._clock = shape, rows, most_staleness, clock
        self.policy, self.over = SamplerPolicy(0, 0, {}), False
        self.on_room: Callable[[], None] = lambda: None  # called when `begin` may succeed again
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Steps, int]] = deque()  # version, fragment, its environment
        self._seats: set[Seat] = set()
        self._lasted: deque[float] = deque(maxlen=REMEMBERED_FRAGMENTS)
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
            seat = Seat(environments, self._clock())
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
            seat.began = self._clock()
        return True

    def _room(self) -> bool:
        if not self.shape.corrected:
            return len(self._waiting) < self.rows
        played = sum(seat.environments for seat in self._seats if seat.playing and not self._overdue(seat))
        environments = sum(seat.environments for seat in self._seats)
        most = min(self.rows + max(self.rows, environments), self.rows * (1 + self._most_staleness))
        return len(self._waiting) + played + self._learning < most

    def _overdue(self, seat: Seat) -> bool:
        if seat.began is None or not self._lasted:
            return False  # the first fragment may take any time
        usual = PATIENCE_TIMES * statistics.median(self._lasted)
        return self._clock() - seat.began > max(PATIENCE_SECONDS, usual)

    def refuse(self) -> None:
        with self._changed:
            self._refused += 1

    def offer(self, seat: Seat, version: int, steps: Steps) -> None:
        with self._changed:
            if seat.began is not None:
                self._lasted.append(self._clock() - seat.began)
            seat.began = None
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

    def overdue(self) -> int:
        """The number of samplers whose fragment no longer counts as played."""
        with self._changed:
            return sum(self._overdue(seat) for seat in self._seats)

    def summary(self) -> Sampling:
        with self._changed:
            return Sampling(
                most_samplers=self._most_seats,
                mean_staleness=self._staleness / max(1, self._used),
                dropped_steps=self._dropped,
                refused_fragments=self._refused,
            )
