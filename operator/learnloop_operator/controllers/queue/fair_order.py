"""The order in which waiting objects get their turns: fair among namespaces, and bounded for each object."""

import time
from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush

from learnloop_operator.controllers.queue.object_key import ObjectKey

CYCLE = 4
"""Of so many turns one goes to a quiet namespace, one to whoever has waited longest, the others to the round."""
QUIET_SECONDS = 0.5
"""Quiet is who had no turn for so long and has one object waiting."""


class Flow:
    """What waits in one namespace: one kind after the other, first come first served within each."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, OrderedDict[ObjectKey, None]] = OrderedDict()
        self._size = 0
        self.turn = 0
        """Number of its last turn; 0 for none."""
        self.served = float("-inf")
        """When that was, in seconds."""
        self.ticket = 0
        """Its place in the line; 0 for none."""

    def __len__(self) -> int:
        return self._size

    def add(self, key: ObjectKey) -> None:
        """Last of its kind."""
        self._kinds.setdefault(key.kind, OrderedDict())[key] = None
        self._size += 1

    def remove(self, key: ObjectKey) -> None:
        """Not any more; its kind keeps its place among the kinds."""
        keys = self._kinds[key.kind]
        del keys[key]
        self._size -= 1
        if not keys:
            del self._kinds[key.kind]

    def first(self) -> ObjectKey:
        """The first of the kind whose turn it is; that kind is the last one then."""
        kind = next(iter(self._kinds))
        self._kinds.move_to_end(kind)
        return next(iter(self._kinds[kind]))


class FairOrder:
    """Keys in fair order. Who gets a turn is one of three, CYCLE by CYCLE:

    - *the round*: the namespace whose last turn is the longest ago, and in it one kind after the other. Whoever had a
      turn goes behind all who wait, so each other namespace gets at most one turn of the round before ours does: a
      backlog, of whatever length, and coming back often get nobody ahead.
    - *the quiet*: the same among namespaces that have a single object waiting and had no turn for a while. On a starved
      machine a round of fifty namespaces may take ten seconds, and one change a second is then more than a share.
    - *the oldest*: the object that has waited longest, whoever's it is. So what is last in the longest backlog waits
      for those who were there before it, and not for as long as its namespace has had more than others.

    A turn of any sort counts as the namespace's turn, and nothing else is remembered of it: no debt can be run up while
    turns are cheap and be paid for later. With n namespaces waiting, the first object of each has its turn after at
    most 2n turns; one with m objects before it, whoever's, after at most CYCLE * (m + 1).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flows: dict[str, Flow] = {}
        self._line: list[tuple[int, int, str]] = []
        """Heap of last turn, ticket, namespace: the order of the round."""
        self._quiet: list[tuple[int, int, str]] = []
        """The same of those that have a single object waiting."""
        self._since: OrderedDict[ObjectKey, float] = OrderedDict()
        """Everything that waits, the oldest first, and since when."""
        self._turns = self._tickets = 0

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: ObjectKey) -> None:
        """Last of its kind in its namespace."""
        flow = self._flows.setdefault(key.namespace, Flow())
        flow.add(key)
        self._since[key] = self._clock()
        self._line_up(key.namespace, flow)

    def remove(self, key: ObjectKey) -> None:
        """Not any more; the namespace keeps its place."""
        flow = self._flows[key.namespace]
        flow.remove(key)
        del self._since[key]
        self._line_up(key.namespace, flow)

    def empty(self, namespace: str) -> bool:
        """Nothing of this namespace waits."""
        return not self._flows.get(namespace)

    def oldest(self) -> tuple[ObjectKey, float] | None:
        """Who has waited longest, and for how many seconds."""
        for key, since in self._since.items():
            return key, self._clock() - since
        return None

    def pop(self) -> ObjectKey:
        """The object whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        if not self._since:
            raise IndexError("nothing waits")
        self._turns += 1
        key = self._choose()
        flow = self._flows[key.namespace]
        flow.remove(key)
        del self._since[key]
        flow.turn, flow.served, flow.ticket = self._turns, self._clock(), 0
        self._line_up(key.namespace, flow)
        if not self._since:
            self._forget()
        return key

    def _choose(self) -> ObjectKey:
        place = self._turns % CYCLE
        if place == 0:
            return next(iter(self._since))
        if place == CYCLE // 2:
            quiet = self._first(self._quiet, 1)
            if quiet is not None and self._clock() - quiet.served >= QUIET_SECONDS:
                return quiet.first()
        flow = self._first(self._line, None)
        assert flow is not None, "who waits has a place in the line"
        return flow.first()

    def _first(self, line: list[tuple[int, int, str]], size: int | None) -> Flow | None:
        """The flow with the lowest place; places that became void are dropped. `size`: only with so many waiting."""
        while line:
            _, ticket, namespace = line[0]
            flow = self._flows[namespace]
            if ticket == flow.ticket and len(flow) and size in (None, len(flow)):
                return flow
            heappop(line)
            if line is self._line and ticket == flow.ticket:
                flow.ticket = 0  # nothing waits there: the next to come lines up anew
        return None

    def _line_up(self, namespace: str, flow: Flow) -> None:
        if flow and not flow.ticket:
            self._tickets += 1
            flow.ticket = self._tickets
            heappush(self._line, (flow.turn, flow.ticket, namespace))
        if len(flow) == 1:
            heappush(self._quiet, (flow.turn, flow.ticket, namespace))

    def _forget(self) -> None:
        # Nobody waits, so nobody is owed anything; nor is a namespace remembered for ever.
        self._flows.clear()
        self._line.clear()
        self._quiet.clear()
