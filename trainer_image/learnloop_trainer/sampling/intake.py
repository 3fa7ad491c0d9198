"""Where fragments wait for the learner: a bounded queue that knows how old each of them is, and the newest policy.

Samplers that are faster than the learner wait before they play, not after: what they play then is by the newest policy.
A fragment begins only where the rows that are played, wait and are learned from fill no more than two updates, or one
and every environment there is. Rows that are overdue (seats.py) count as nobody's. So steps are about one version old
when the learner takes them, however fast they come. Fu et al. (2025), arXiv 2505.24298, bound staleness by what is
under way in the same manner. A replay buffer does not care how old its steps are: there the queue alone holds back
whoever is too fast.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Sampling
from learnloop_trainer.sampling.fragment import Shape, Steps
from learnloop_trainer.sampling.seats import Seat, Seats
from learnloop_trainer.store.array_container import Arrays


@dataclass(frozen=True, slots=True)
class SamplerPolicy:
    """What samplers play with."""

    version: int  # counted from 1 by each process of the learner
    step: int  # environment steps learned from before it
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Block:
    """What the learner takes at once; steps [steps, rows]."""

    steps: Steps
    returns: tuple[float, ...]  # of the episodes that ended in them


class Intake:
    """Fragments by the environment, each a row of `shape.steps` steps."""

    def __init__(self, shape: Shape, rows: int, most_staleness: int, seats: Seats | None = None) -> None:
        """`rows`: that the learner takes at once; as many may wait."""
        self.shape, self.rows, self._most_staleness = shape, rows, most_staleness
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Steps, int]] = deque()  # version, fragment, its environment
        self._policy = SamplerPolicy(0, 0, {})
        self._over = False
        self._seats = Seats() if seats is None else seats
        self._learning = 0  # rows taken
        self._dropped = self._refused = 0
        self._staleness, self._used = 0, 0  # summed over rows, and how many
        self._newest_staleness = 0.0

    @property
    def policy(self) -> SamplerPolicy:
        """The newest."""
        return self._policy

    @property
    def over(self) -> bool:
        """Nobody learns any more."""
        return self._over

    def publish(self, arrays: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """A new version: copies of the arrays."""
        copies = {name: array.copy() for name, array in arrays.items()}
        with self._changed:
            self._policy = SamplerPolicy(self._policy.version + 1, step, copies)
            self._learning = 0
            self._changed.notify_all()

    def finish(self) -> None:
        """Samplers may go."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def joined(self, environments: int) -> Seat:
        """A sampler came, and plays by the policy it was greeted with."""
        with self._changed:
            return self._seats.take(environments)

    def left(self, seat: Seat) -> None:
        """A sampler went; what it had begun will never come."""
        with self._changed:
            self._seats.leave(seat)
            self._changed.notify_all()

    def begin(self, seat: Seat, patience: float) -> bool:
        """A sampler begins a fragment; waits while enough is under way. False: it was so for `patience` seconds."""
        end = time.monotonic() + patience
        with self._changed:
            while self.shape.corrected and self._under_way() >= self._most_under_way() and not self._over:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            self._seats.begin(seat)
        return True

    def _under_way(self) -> int:
        return len(self._waiting) + self._seats.rows_expected() + self._learning

    def _most_under_way(self) -> int:
        """At least the rows of an update: nobody waits for samplers that wait themselves."""
        return min(self.rows + max(self.rows, self._seats.environments), self.rows * (1 + self._most_staleness))

    def refused(self) -> None:
        """A message was no good."""
        with self._changed:
            self._refused += 1

    def offer(self, seat: Seat, version: int, steps: Steps, patience: float) -> bool:
        """Put a fragment that was begun in the queue. False: the queue was full for `patience` seconds.

        Full it is for a replay buffer alone: elsewhere no more are begun than it may hold.
        """
        count, end = steps.reward.shape[1], time.monotonic() + patience
        with self._changed:
            while not self.shape.corrected and len(self._waiting) >= self.rows and not self._over:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            self._seats.end(seat)
            self._waiting.extend((version, steps, index) for index in range(count))
            self._drop_stale()
            self._changed.notify_all()
        return True

    def take(self, patience: float) -> Block | None:
        """`rows` rows that are not too old; None: there are not as many within `patience` seconds. They stay."""
        end = time.monotonic() + patience
        with self._changed:
            self._learning = 0  # what was taken before is learned from, even where nothing was published since
            self._drop_stale()
            while len(self._waiting) < self.rows:
                left = end - time.monotonic()
                if left <= 0 or self._over:
                    return None
                self._changed.wait(left)
            taken = [self._waiting.popleft() for _ in range(self.rows)]
            self._learning = self.rows
            ages = [self._policy.version - version for version, _, _ in taken]
            self._staleness, self._used = self._staleness + sum(ages), self._used + len(ages)
            self._newest_staleness = sum(ages) / len(ages)
            self._changed.notify_all()
        names = taken[0][1].arrays()
        joined = {
            name: np.stack([getattr(steps, name)[:, index] for _, steps, index in taken], axis=1) for name in names
        }
        steps = Steps(**joined)
        ended = steps.terminated | steps.truncated
        return Block(steps, tuple(float(value) for value in steps.returned[ended]))

    def _drop_stale(self) -> None:
        """At each end of the queue: versions change between two calls of `take`, and fragments may be late."""
        fresh = [item for item in self._waiting if self._policy.version - item[0] <= self._most_staleness]
        gone = len(self._waiting) - len(fresh)
        if gone:
            self._dropped += gone * self.shape.steps
            self._waiting = deque(fresh)
            self._changed.notify_all()

    def figures(self) -> dict[str, float]:
        """As heartbeats name them."""
        with self._changed:
            return {
                "samplers": float(len(self._seats)),
                "staleness": self._newest_staleness,
                "dropped_steps": float(self._dropped),
                "refused_fragments": float(self._refused),
            }

    def overdue(self) -> int:
        """Samplers whose fragment is not waited for any more."""
        with self._changed:
            return self._seats.overdue()

    def told(self) -> Sampling:
        """For the manifest."""
        with self._changed:
            return Sampling(
                most_samplers=self._seats.most,
                mean_staleness=self._staleness / max(1, self._used),
                dropped_steps=self._dropped,
                refused_fragments=self._refused,
            )
