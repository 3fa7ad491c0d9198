"""This server's part of the decisions that a ModelDeployment may give in a second.

The operator divides the limit: an arm gets a part by its weight, and each of its servers the same part of that. So no
server asks another, and all together never give more than the limit, but for what each may give at once: the decisions
of one second, one at least (a token bucket).
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from learnloop_api.wire.routing import RoutingTable
from learnloop_serving.refusal import Refusal
from learnloop_serving.routing_table import RoutingState

MOST_AGENTS = 4096
LONGEST_WAIT = 60
"""Seconds that a caller is told to wait at most: the limit may have changed by then."""


class Bucket:
    """Tokens that come back at a rate (1/s)."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._most = rate, max(1.0, rate)
        self._left, self._at = self._most, now

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0: there is one."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / self._rate

    def turn(self, rate: float, now: float) -> None:
        """Another rate from now on. What was given stays given: pods that come and go earn nobody a second's worth."""
        self.wait(now)
        self._rate, self._most = rate, max(1.0, rate)
        self._left = min(self._left, self._most)

    def take(self) -> None:
        """One decision is given."""
        self._left -= 1.0


class DecisionBuckets:
    """The buckets of the arm `revision` on this server, which go on where the table says another limit."""

    def __init__(self, revision: str, routing: RoutingState, clock: Callable[[], float] = time.monotonic) -> None:
        self._revision, self._routing, self._clock = revision, routing, clock
        self._table: RoutingTable | None = None
        self._rates: tuple[float | None, float | None] = (None, None)
        self._all: Bucket | None = None
        self._agents: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, tag: str) -> None:
        """Count a decision for the agent of `tag` ("": nobody knows which).

        Raises:
            Refusal: 429, there are none left; it says how long to wait.
        """
        table = self._routing.table
        if table is not self._table:
            self._read(table)
        if self._rates == (None, None):
            return
        now = self._clock()
        buckets = [bucket for bucket in (self._all, self._of(tag, now)) if bucket is not None]
        wait = max(bucket.wait(now) for bucket in buckets)
        if wait > 0.0:
            seconds = math.ceil(min(LONGEST_WAIT, wait))
            text = f"spec.decisionLimits: this server has given its part of the decisions: ask again in {seconds} s"
            raise Refusal(429, "Throttled", text, retry_after=seconds)
        for bucket in buckets:
            bucket.take()

    def _of(self, tag: str, now: float) -> Bucket | None:
        rate = self._rates[1]
        if rate is None:
            return None
        bucket = self._agents.pop(tag, None) or Bucket(rate, now)
        self._agents[tag] = bucket
        if len(self._agents) > MOST_AGENTS:
            self._agents.popitem(last=False)
        return bucket

    def _read(self, table: RoutingTable | None) -> None:
        self._table = table
        arm = next((one for one in table.arms if one.revision == self._revision), None) if table else None
        limits = table.limits if table else None
        part = arm.share if arm is not None and arm.share is not None else 1.0
        bounds = (limits.per_second, limits.per_agent_per_second) if limits else (None, None)
        rates = (bounds[0] and bounds[0] * part, bounds[1] and bounds[1] * part)
        if rates == self._rates:
            return
        self._rates, now = rates, self._clock()
        if rates[0] is None:
            self._all = None
        elif self._all is None:
            self._all = Bucket(rates[0], now)
        else:
            self._all.turn(rates[0], now)
        if rates[1] is None:
            self._agents.clear()
        else:
            for bucket in self._agents.values():
                bucket.turn(rates[1], now)
