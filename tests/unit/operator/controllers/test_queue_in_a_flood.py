"""The queue in virtual time: bench-operator's burst with its neighbour, on a machine of so many passes a second.

The same arrivals brought to light how a neighbour could lie in the queue for 13 s: it had turns while they were scarce,
and paid for them afterwards.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from learnloop_operator.controllers.queue.dirty_queue import DirtyQueue
from learnloop_operator.controllers.queue.object_key import ObjectKey

KINDS = {"RewardPolicy": 45, "TrainingJob": 41, "ModelDeployment": 10, "LearningAgent": 3, "MemoryService": 1}
NEIGHBOUR = ObjectKey("RewardPolicy", "quiet", "reward")
WORKERS, TEAMS = 16, 50
ECHO_SECONDS, ECHO_COST = 0.3, 0.2
"""Until a status written comes back, at most; and what that pass costs, in passes of an edit."""


@dataclass
class Machine:
    """`rate` passes a second while changes are sent, `rate_after` when they have been."""

    sending: float
    rate: float
    rate_after: float
    now: float = 0.0
    busy: int = 0
    edited: dict[ObjectKey, float] = field(default_factory=dict)
    waits: defaultdict[ObjectKey, float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self._draw, self._numbers = random.Random(1), count()
        self._queue = DirtyQueue(lambda: self.now)
        self._events: list[tuple[float, int, str, ObjectKey, bool]] = []

    def run(self, changes: int) -> "Machine":
        """All changes, evenly, and a change a second of the neighbour, told up to a second late."""
        kinds, numbers = list(KINDS), defaultdict[str, int](int)
        for i in range(changes):
            kind = self._draw.choices(kinds, list(KINDS.values()))[0]
            numbers[kind] += 1
            key = ObjectKey(kind, f"team-{numbers[kind] % TEAMS}", f"o-{numbers[kind]}")
            self._at(self.sending * i / changes, "edit", key)
        for second in range(int(self.sending)):
            self._at(second + self._draw.random(), "edit", NEIGHBOUR)
        while self._events:
            self.now, _, what, key, wrote = heappop(self._events)
            getattr(self, f"_{what}")(key, wrote)
            while self.busy < WORKERS and self._queue._queued:
                self._begin()
        return self

    def _at(self, moment: float, what: str, key: ObjectKey, wrote: bool = False) -> None:
        heappush(self._events, (moment, next(self._numbers), what, key, wrote))

    def _edit(self, key: ObjectKey, _: bool) -> None:
        self.edited.setdefault(key, self.now)
        self._queue.mark(key)

    def _echo(self, key: ObjectKey, _: bool) -> None:
        self._queue.mark(key, urgent=False)

    def _end(self, key: ObjectKey, wrote: bool) -> None:
        self.busy -= 1
        self._queue.done(key)
        if wrote:
            self._at(self.now + ECHO_SECONDS * self._draw.random(), "echo", key)

    def _begin(self) -> None:
        try:
            self._queue.take().send(None)
        except StopIteration as taken:
            key: ObjectKey = taken.value
        else:
            raise AssertionError("what waits can be taken at once")
        self.busy += 1
        since = self.edited.pop(key, None)
        if since is not None:
            self.waits[key] = max(self.waits[key], self.now - since)
        rate = self.rate if self.now < self.sending else self.rate_after
        seconds = WORKERS / rate * (0.2 + 1.6 * self._draw.random()) * (1.0 if since is not None else ECHO_COST)
        self._at(self.now + seconds, "end", key, since is not None)


def test_in_a_flood_on_a_starved_machine_the_neighbour_waits_for_a_moment_and_the_flood_for_itself() -> None:
    # 10,000 in 37 s where only 1,100 can be looked at meanwhile: a round of 51 namespaces takes two seconds.
    done = Machine(sending=37.0, rate=30.0, rate_after=80.0).run(10_000)
    assert done.waits[NEIGHBOUR] < 1.0
    assert len(done.waits) == 10_001, "nobody is forgotten"


def test_what_comes_as_fast_as_it_can_be_worked_off_waits_for_the_backlog_and_not_for_its_namespace() -> None:
    # 91 changes a second, and the echoes of as many writes: a little more than the machine can do.
    done = Machine(sending=55.0, rate=90.0, rate_after=90.0).run(5_000)
    assert max(done.waits.values()) < 5.0
    assert done.waits[NEIGHBOUR] < 1.0
