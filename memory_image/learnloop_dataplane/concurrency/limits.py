"""Limits: a queue that refuses early, one heavy task per agent, slots fair by namespace, a rate of episodes."""

import asyncio
import math
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from learnloop_dataplane.config_values import Quotas
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.metrics import Metrics

LATEST_SECONDS = 2  # whoever is refused is asked to come back by then
SHARE = 0.05  # of the latest wait in the pace


@dataclass(slots=True)
class _Waiting:
    """One in the queue: since when, and how many had ended by then."""

    turn: asyncio.Future[None]
    since: float
    ended: int


class Turns:
    """An async context manager around the work. Overload then costs some callers a retry, and nobody a long wait.

    Args:
        at_once: how many are in at a time.
        patience: seconds one may wait. Who would wait longer, by the pace at which others got their turns of late, is
            refused on arrival; who did in spite of that, when the turn comes.
        most_waiting: above, one is refused on arrival.
    """

    def __init__(self, *, at_once: int, patience: float, most_waiting: int = 256) -> None:
        self._free = at_once
        self._patience = patience
        self._most = most_waiting
        self._queue: deque[_Waiting] = deque()
        self._ended = 0
        self._pace = 0.0  # seconds from one end to the next while somebody waits, of late

    def expect(self) -> None:
        """For before anything else is done for one: a refusal that comes first costs next to nothing.

        Raises:
            ApiError: 429, no turn would come in time.
        """
        waiting = len(self._queue)
        # One may always wait, or a pace that was slow once would never be found to be better.
        if waiting >= self._most or (waiting and (waiting + 1) * self._pace > self._patience):
            raise _too_many()

    async def __aenter__(self) -> None:
        """Waits for a turn.

        Raises:
            ApiError: 429, none would come in time, or it did not.
        """
        if self._free:
            self._free -= 1
            return
        self.expect()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(turn, time.monotonic(), self._ended))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        now = time.monotonic()
        self._ended += 1
        while self._queue:
            one = self._queue.popleft()
            if one.turn.done():  # gave up
                continue
            waited = now - one.since
            pace = waited / (self._ended - one.ended)
            self._pace += SHARE * (pace - self._pace) if self._pace else pace
            if waited > self._patience:
                one.turn.set_exception(_too_many())
                continue
            one.turn.set_result(None)
            return
        self._free += 1


def _too_many() -> ApiError:
    # Those who are refused together would come back together, and be refused together again.
    seconds = random.randint(1, LATEST_SECONDS)
    message = f"more recalls than can be answered in time; send it again after {seconds} s"
    return ApiError(429, message, retry_after=seconds)


RETRY_SECONDS = 10


class OneEach:
    """Who is at it. To be entered before a connection is taken: what waits here would keep it from everybody else.

    Args:
        what: the work, as a refusal names it.
        at_once: how much of it there is at a time.
    """

    def __init__(self, what: str, at_once: int) -> None:
        self._what = what
        self._at_once = at_once
        self._busy: set[tuple[str, str]] = set()

    @contextmanager
    def turn(self, namespace: str, agent: str) -> Iterator[None]:
        """Around the work for one agent.

        Raises:
            ApiError: 429, this agent is being seen to, or as many others as may be.
        """
        if (namespace, agent) in self._busy:
            message = f"{self._what} of this agent is under way; send it again after {RETRY_SECONDS} s"
            raise ApiError(429, message, field="agent_id", value=agent, retry_after=RETRY_SECONDS)
        if len(self._busy) >= self._at_once:
            message = f"{self._what} of {self._at_once} agents is under way; send it again after {RETRY_SECONDS} s"
            raise ApiError(429, message, retry_after=RETRY_SECONDS)
        self._busy.add((namespace, agent))
        try:
            yield
        finally:
            self._busy.discard((namespace, agent))


class FairPlaces:
    """What costs the processor, or a server, of everybody. Use from one event loop at a time.

    Args:
        at_once: how many places there are. With more than one, a namespace has all but one of them at most: so the
            first that another one asks for is free at once.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._most = max(1, at_once - 1)
        self._taken: Counter[str] = Counter()
        # Who was served last is behind all others that have as many places.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a place, and keeps it meanwhile."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(namespace)
            else:
                self._forget(namespace, turn)
            raise
        try:
            yield
        finally:
            self._give_back(namespace)

    def _hand_out(self) -> None:
        while self._free:
            able = [namespace for namespace in self._waiting if self._taken[namespace] < self._most]
            if not able:
                return
            namespace = min(able, key=self._taken.__getitem__)  # of several the first, who has waited longest
            turn = self._waiting[namespace].popleft()
            if self._waiting[namespace]:
                self._waiting.move_to_end(namespace)
            else:
                del self._waiting[namespace]
            if turn.done():
                continue
            self._free -= 1
            self._taken[namespace] += 1
            turn.set_result(None)

    def _give_back(self, namespace: str) -> None:
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        self._hand_out()

    def _forget(self, namespace: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(namespace)
        if queue and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[namespace]


BURST_SECONDS = 10.0
KNOWN = 10_000
"""Namespaces that are remembered; the one that was quiet longest is full again anyway."""


class EpisodeRate:
    """What each namespace may still send now, at this replica."""

    def __init__(self, quotas: Quotas, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas, self._metrics, self._clock = quotas, metrics, clock
        self._left: dict[str, tuple[float, float]] = {}

    def admit(self, namespace: str) -> None:
        """Counts one episode.

        Raises:
            ApiError: 429, there were too many in the last seconds.
        """
        limit = self._quotas.of(namespace).episodes_per_second
        if limit is None:
            return
        now, most = self._clock(), max(1.0, limit * BURST_SECONDS)
        left, since = self._left.pop(namespace, (most, now))
        left = min(most, left + (now - since) * limit)
        allowed = left >= 1
        while len(self._left) >= KNOWN:
            del self._left[next(iter(self._left))]
        self._left[namespace] = (left - 1 if allowed else left, now)
        if not allowed:
            self._metrics.over_quota(namespace, "episodes")
            raise ApiError(
                429,
                f"namespace {namespace} sends more than {limit:g} episodes a second "
                "(dataPlane.quotas.episodesPerSecond of the chart); send it again later, or ask for more",
                retry_after=max(1, math.ceil((1 - left) / limit)),
            )
