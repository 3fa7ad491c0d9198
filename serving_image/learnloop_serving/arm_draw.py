"""Draw of the next episode's arm, which can never over-expose the canary.

Each server keeps a *credit bank* per canary arm. Every drawn episode adds w = weight/100 to it. A bank of at least 1 is
spent (the episode goes to the canary) with probability (1+W)/2. W is the share of all canaries together (W = w for a
single one). Spending takes 1 away, so

- on one server, after any number n of draws at weight w, canary episodes ≤ w·n, always, not on average;
- sums keep that: for any number of servers that know nothing of each other, canary episodes ≤ w·n in total;
- spending is a coin flip, so no caller can line itself up with the canary, and since (1+W)/2 > W the banks drain
  faster than they fill: the long-run share is w;
- weight 100 adds a whole credit and spends it with certainty: every episode goes to the canary.

A change of weight empties the bank. Credit earned at another weight is never carried over: the bound above holds
from the moment of the change, and a rise never pays back episodes of the past.
Credits are counted in whole hundredths, so the bound is exact.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from learnloop_api.wire.routing import Arm, RoutingTable

WHOLE = 100


class Uniform(Protocol):
    """The only randomness the draw needs: random.Random has it."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class CreditBank:
    """The draw of one server; see the module's text. Not thread-safe, one event loop owns it."""

    def __init__(self, source: Uniform | None = None) -> None:
        self._source: Uniform = source or random.SystemRandom()
        self._credit: dict[str, int] = {}
        self._weight: dict[str, int] = {}

    def draw(self, canaries: Sequence[Arm]) -> Arm | None:
        """The canary arm that gets this episode, or None for the stable one.

        With several canaries each keeps its own bank and bound; one episode spends at most one of them, and the
        order in which they are asked rotates at random so that none is favoured.
        """
        self._follow(canaries)
        for arm in canaries:
            self._credit[arm.revision] += arm.weight
        spends = (WHOLE + sum(arm.weight for arm in canaries)) / (2 * WHOLE)
        start = int(self._source.random() * len(canaries)) if len(canaries) > 1 else 0
        for arm in [*canaries[start:], *canaries[:start]]:
            if self._credit[arm.revision] >= WHOLE and self._source.random() < spends:
                self._credit[arm.revision] -= WHOLE
                return arm
        return None

    def _follow(self, canaries: Sequence[Arm]) -> None:
        """Start every bank whose weight changed at nothing and forget arms that are gone."""
        weights = {arm.revision: arm.weight for arm in canaries}
        if weights != self._weight:
            self._credit = {
                revision: self._credit[revision] if self._weight.get(revision) == weight else 0
                for revision, weight in weights.items()
            }
            self._weight = weights


def stable_arm(table: RoutingTable) -> Arm | None:
    """The arm that takes everything the canaries do not."""
    return next((arm for arm in table.arms if arm.role == "stable"), None)


def choose_arm(
    table: RoutingTable, bank: CreditBank, *, stable_only: bool, reached: Callable[[Arm], bool]
) -> Arm | None:
    """The arm of a new episode in service mode; None if the table has none.

    A caller that asks for stable and a canary that has not been `reached` yet earn no credit.
    """
    stable = stable_arm(table)
    if stable_only:
        return stable
    return bank.draw([arm for arm in table.arms if arm.role == "canary" and reached(arm)]) or stable
