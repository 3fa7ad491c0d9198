"""Whose turn it is to ship: each namespace one batch after the other, so that one with much to ship holds up nobody."""

from collections.abc import Awaitable, Callable, Sequence

from learnloop_dataplane.errors import StoreAway, Unavailable

ROUNDS = 20  # of one pass; a pass that ends says that the work is well


class ShippingRounds:
    """Rounds over all namespaces that there are when a round begins.

    Args:
        namespaces: their names.
        ship: one turn of a namespace; returns whether more waits there.
    """

    def __init__(
        self, namespaces: Callable[[], Awaitable[Sequence[str]]], ship: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._namespaces = namespaces
        self._ship = ship
        self._last = ""

    async def run(self) -> None:
        """Rounds until nobody has more than a batch, ROUNDS at most.

        What is wrong with one namespace stops no other, and is raised at the end. A store that is away stops them all;
        the next pass begins with the namespace after: what a store refuses may be this one's data.

        Raises:
            Unavailable, StoreAway: PostgreSQL or the warehouse.
            Exception: the first that a namespace raised.
        """
        failed: dict[str, Exception] = {}
        for _ in range(ROUNDS):
            more = False
            for namespace in self._in_turn(await self._namespaces()):
                if namespace in failed:
                    continue
                self._last = namespace
                try:
                    more |= await self._ship(namespace)
                except (Unavailable, StoreAway):
                    raise
                except Exception as error:
                    failed[namespace] = error
            if not more:
                break
        for wrong in failed.values():
            raise wrong

    def _in_turn(self, namespaces: Sequence[str]) -> list[str]:
        """All, beginning after the one that was last."""
        return sorted(namespaces, key=lambda name: (name <= self._last, name))
