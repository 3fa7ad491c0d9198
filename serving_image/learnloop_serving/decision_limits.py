"""This server's part of spec.decisionLimits.

The operator divides the limit: an arm gets a part by its weight, and each of its servers an equal part of that. So all
servers together never exceed the limit, except for a burst of one second's decisions, at least one (a token bucket).
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from learnloop_serving.refusal import Refusal
from learnloop_serving.routing_table import RoutingState

MOST_AGENTS = 4096
LONGEST_WAIT = 60
"""Seconds in a refusal at most: the limit may have changed by then."""


class Bucket:
    """Tokens that return at a rate (1/s); the rate may change."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._left, self._at = rate, max(1.0, rate), now

    def wait(self, now: float, rate: float) -> float:
        """Seconds until there is a token at this rate; 0: there is one."""
        self._left = min(max(1.0, rate), self._left + (now - self._at) * self._rate)
        self._rate, self._at = rate, now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / rate

    def take(self) -> None:
        """Use a token."""
        self._left -= 1.0


class DecisionBuckets:
    """The buckets of the arm `revision` on this server; a change of the table's limits changes their rates."""

    def __init__(self, revision: str, routing: RoutingState, clock: Callable[[], float] = time.monotonic) -> None:
        self._revision, self._routing, self._clock = revision, routing, clock
        self._buckets: OrderedDict[str | None, Bucket] = OrderedDict()

    def take(self, tag: str) -> None:
        """Count a decision for the agent of `tag` ("": unknown).

        Raises:
            Refusal: 429 with the time to wait: the decisions are used up.
        """
        now = self._clock()
        rates = {key: rate for key, rate in zip((None, tag), self._rates(), strict=True) if rate is not None}
        if not rates:
            self._buckets.clear()
            return
        buckets = {key: self._bucket(key, rate, now) for key, rate in rates.items()}
        self._buckets |= buckets
        while len(self._buckets) > MOST_AGENTS:
            self._buckets.popitem(last=False)
        wait = max(bucket.wait(now, rates[key]) for key, bucket in buckets.items())
        if wait > 0.0:
            seconds = math.ceil(min(LONGEST_WAIT, wait))
            text = f"spec.decisionLimits: this server's part of the decisions is used up: ask again in {seconds} s"
            raise Refusal(429, "Throttled", text, retry_after=seconds)
        for bucket in buckets.values():
            bucket.take()

    def _bucket(self, key: str | None, rate: float, now: float) -> Bucket:
        return self._buckets.pop(key) if key in self._buckets else Bucket(rate, now)

    def _rates(self) -> tuple[float | None, float | None]:
        """Decisions in a second of all agents, and of one."""
        table = self._routing.table
        if table is None or table.limits is None:
            return None, None
        arm = next((one for one in table.arms if one.revision == self._revision), None)
        part = arm.share if arm is not None and arm.share is not None else 1.0
        both = table.limits.per_second, table.limits.per_agent_per_second
        return both[0] and both[0] * part, both[1] and both[1] * part
