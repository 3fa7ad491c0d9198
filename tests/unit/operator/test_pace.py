"""How many requests go to the API server at once."""

import asyncio
from contextlib import suppress

from learnloop_operator.adapters.pace import FEWEST, LATE_SECONDS, MOST, Pace


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
