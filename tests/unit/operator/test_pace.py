"""How many requests go to the API server at once."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.adapters.pace import FEWEST, LATE_SECONDS, MOST, Pace, on_behalf_of


class Server:
    """One clock for the pace, and answers that take as long as told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = Pace(lambda: self.now)

    async def answers(self, count: int, seconds: float) -> None:
        """One request after the other."""
        for _ in range(count):
            async with self.pace.turn():
                self.now += seconds


async def test_late_answers_leave_few_places_and_prompt_ones_bring_all_of_them_back() -> None:
    server = Server()
    await server.answers(10, 0.01)
    await server.answers(100, 5 * LATE_SECONDS)
    assert server.pace.allowed == FEWEST
    await server.answers(MOST * MOST, 0.01)
    assert server.pace.allowed == MOST


async def test_a_distant_api_server_is_not_mistaken_for_a_busy_one() -> None:
    server = Server()
    await server.answers(200, 3 * LATE_SECONDS)
    assert server.pace.allowed == MOST


async def test_a_crowd_of_late_answers_to_what_was_sent_together_costs_one_step() -> None:
    server = Server()
    await server.answers(1, 0.01)
    sent, answered = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        async with server.pace.turn():
            sent.set()
            await answered.wait()

    crowd = [asyncio.create_task(slow()) for _ in range(MOST)]
    await sent.wait()
    server.now += 1.0
    answered.set()
    await asyncio.gather(*crowd)
    assert server.pace.allowed == int(MOST * 0.8)


async def test_a_refusal_halves_the_places_and_is_no_prompt_answer() -> None:
    server = Server()
    async with server.pace.turn():
        server.now += 0.001
        server.pace.refused()
    assert server.pace.allowed == MOST // 2


async def test_no_more_are_under_way_than_allowed_and_a_cancelled_one_takes_no_place_with_it() -> None:
    server = Server()
    for _ in range(5):
        server.pace.refused()
    busy, most, full, over = 0, 0, asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        nonlocal busy, most
        async with server.pace.turn():
            busy += 1
            most = max(most, busy)
            if busy == FEWEST:
                full.set()
            try:
                await over.wait()
            finally:
                busy -= 1

    tasks = [asyncio.create_task(ask()) for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:  # some that have a place, some that wait for one
        task.cancel()
    await asyncio.sleep(0)
    over.set()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    assert most == FEWEST
    over.clear()
    full.clear()
    again = [asyncio.create_task(ask()) for _ in range(FEWEST)]
    async with asyncio.timeout(60):
        await full.wait()
    over.set()
    await asyncio.gather(*again)


async def order_of(asked: Sequence[str], given_up: Sequence[int] = ()) -> list[str]:
    """Who is served when, one by one, where all these namespaces asked while every place was taken."""
    pace, over, served = Pace(), asyncio.Event(), list[str]()

    async def hold() -> None:
        async with pace.turn():
            await over.wait()

    async def ask(namespace: str) -> None:
        with on_behalf_of(namespace):
            # Begun inside, as by asyncio.gather: it is still on behalf of the namespace.
            await asyncio.create_task(one(namespace))

    async def one(namespace: str) -> None:
        async with pace.turn():
            served.append(namespace)
            await asyncio.sleep(0)

    for _ in range(5):
        pace.refused()
    places = [asyncio.create_task(hold()) for _ in range(FEWEST)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(ask(namespace)) for namespace in asked]
    for _ in range(3):
        await asyncio.sleep(0)
    for index in given_up:
        waiting[index].cancel()
    await asyncio.sleep(0)
    places[0].cancel()  # one place only: the order shows
    await asyncio.gather(*waiting, return_exceptions=True)
    over.set()
    await asyncio.gather(*places, return_exceptions=True)
    return served


async def test_one_request_does_not_wait_behind_the_dozens_of_another_namespace() -> None:
    assert await order_of(["busy"] * 30 + ["quiet"]) == ["busy", "quiet", *["busy"] * 29]


ASKED = st.lists(st.sampled_from("abcd"), min_size=1, max_size=30)


@given(ASKED, st.data())
def test_each_request_waits_behind_as_many_of_any_other_namespace_as_its_own_has_before_it(
    asked: list[str], data: st.DataObject
) -> None:
    given_up = data.draw(st.sets(st.sampled_from(range(len(asked)))))
    served = asyncio.run(order_of(asked, sorted(given_up)))
    left = [namespace for index, namespace in enumerate(asked) if index not in given_up]
    assert sorted(served) == sorted(left)
    for index, namespace in enumerate(served):
        mine = served[: index + 1].count(namespace)
        assert all(served[:index].count(other) <= mine for other in set(left) - {namespace})
