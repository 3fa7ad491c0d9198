"""The choice of an episode's arm: the draw of canaries by their weight, and the stable arm for everything else."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from learnloop_api.wire.routing import Arm, RoutingTable

WHOLE = 100


class Uniform(Protocol):
    """The only randomness the draw needs: random.Random has it."""

    def random(self) -> float: ...


class CreditBank:
    """The draw of one server. Not thread-safe, one event loop owns it.

    Each episode adds its weight to a canary's credit, and a canary takes an episode only out of credit: its share never
    exceeds its weight, and the moment is random (decision 0005).
    """

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
