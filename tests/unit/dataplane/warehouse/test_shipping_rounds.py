"""Every namespace ships in its turn, whatever the others have or do."""

import pytest

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.warehouse.shipping_rounds import ROUNDS, ShippingRounds


class Namespaces:
    """So many batches each; `wrong` raise."""

    def __init__(self, **batches: int) -> None:
        self.batches, self.wrong = batches, dict[str, Exception]()
        self.turns: list[str] = []

    async def names(self) -> list[str]:
        return list(self.batches)

    async def ship(self, namespace: str) -> bool:
        self.turns.append(namespace)
        if namespace in self.wrong:
            raise self.wrong[namespace]
        self.batches[namespace] -= 1
        return self.batches[namespace] > 0


async def test_each_ships_one_batch_before_anybody_ships_a_second() -> None:
    some = Namespaces(a=3, b=1, c=2)
    await ShippingRounds(some.names, some.ship).run()
    assert "".join(some.turns) == "abcabcabc"


async def test_a_namespace_that_never_ends_lets_a_new_one_in_and_the_pass_end() -> None:
    some = Namespaces(a=10**9)
    rounds = ShippingRounds(some.names, some.ship)
    await rounds.run()
    assert some.turns == ["a"] * ROUNDS
    some.batches["b"] = 1
    await rounds.run()
    assert some.turns[ROUNDS:][:2] == ["b", "a"]


async def test_what_is_wrong_with_one_stops_no_other_and_is_told_at_the_end() -> None:
    some = Namespaces(a=1, b=2)
    some.wrong["a"] = ValueError("bad row")
    with pytest.raises(ValueError, match="bad row"):
        await ShippingRounds(some.names, some.ship).run()
    assert some.turns == ["a", "b", "b"]


async def test_after_a_store_did_not_answer_it_is_the_next_one_s_turn() -> None:
    some = Namespaces(a=1, b=1, c=1)
    some.wrong["b"] = Unavailable("ClickHouse")
    rounds = ShippingRounds(some.names, some.ship)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await rounds.run()
    assert "".join(some.turns) == "abcab"
