"""How many requests go to the API server at once."""

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.adapters.kube.concurrency_limit import (
    FEWEST,
    LATE_SECONDS,
    MOST,
    OLDEST_EACH,
    ConcurrencyLimit,
    on_behalf_of,
)


class Server:
    """One clock for the pace, and answers that take as long as told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = ConcurrencyLimit(lambda: self.now)

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


class OnePlace:
    """All places but one are taken for good; that one changes hands when told."""

    def __init__(self) -> None:
        self._pace, self._forever, self._over = ConcurrencyLimit(lambda: 0.0), asyncio.Event(), asyncio.Event()
        self.served: list[int] = []
        """Numbers of the requests, in the order in which they got the place."""
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "OnePlace":
        for _ in range(5):
            self._pace.refused()
        self._holders = [asyncio.create_task(self._hold(self._forever)) for _ in range(FEWEST - 1)]
        self._holders.append(asyncio.create_task(self._hold(self._over)))
        await settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forever.set()
        while any(not task.done() for task in self.tasks):
            await self.pass_on()
        await asyncio.gather(*self._holders)

    async def ask(self, namespace: str) -> int:
        """The number of a request that waits from now on."""
        number = len(self.tasks)
        self.tasks.append(asyncio.create_task(self._pass_of(namespace, number)))
        await settled()
        return number

    async def pass_on(self) -> None:
        """Whoever has the place gives it up."""
        self._over.set()
        self._over = asyncio.Event()
        await settled()

    async def _hold(self, over: asyncio.Event) -> None:
        async with self._pace.turn():
            await over.wait()

    async def _pass_of(self, namespace: str, number: int) -> None:
        with on_behalf_of(namespace):
            await asyncio.gather(self._request(number))  # a task begun inside is on behalf of the namespace, too

    async def _request(self, number: int) -> None:
        async with self._pace.turn():
            self.served.append(number)
            await self._over.wait()


async def settled() -> None:
    """Every task has gone as far as it can."""
    for _ in range(6):
        await asyncio.sleep(0)


async def test_one_request_does_not_wait_behind_the_dozens_of_another_namespace() -> None:
    async with OnePlace() as line:
        for _ in range(30):
            await line.ask("busy")
        for _ in range(5):
            await line.pass_on()
        quiet = await line.ask("quiet")
        await line.pass_on()
        await line.pass_on()
        assert quiet in line.served


async def test_who_asks_now_and_then_goes_before_fifty_that_never_stop() -> None:
    async with OnePlace() as line:
        for _ in range(3):
            for team in range(50):
                await line.ask(f"team-{team}")
        for _ in range(100):
            await line.pass_on()
        for _ in range(2):  # two requests of a pass, the second once the first is answered
            quiet = await line.ask("quiet")
            await line.pass_on()
            await line.pass_on()
            assert quiet in line.served


ARRIVALS = st.lists(st.lists(st.sampled_from("aaaabcd"), max_size=6), min_size=1, max_size=12)


@given(ARRIVALS, st.sets(st.integers(0, 30)))
def test_a_request_waits_for_four_times_as_many_as_there_were_before_it_at_most(
    arrivals: list[list[str]], given_up: set[int]
) -> None:
    asyncio.run(all_are_served_in_time(arrivals, given_up))


async def all_are_served_in_time(arrivals: list[list[str]], given_up: set[int]) -> None:
    before: dict[int, tuple[int, int]] = {}
    whose: list[str] = []
    async with OnePlace() as line:
        for together in arrivals:
            for namespace in together:
                waiting = sum(not task.done() for task in line.tasks)
                before[await line.ask(namespace)] = len(line.served), waiting
                whose.append(namespace)
            for number in given_up & set(range(len(line.tasks))):
                line.tasks[number].cancel()
            await line.pass_on()
    for place, number in enumerate(line.served):
        served, waiting = before[number]
        assert place - served <= OLDEST_EACH * (waiting + 1)
    assert set(line.served) | given_up >= set(range(len(whose)))
    for namespace in set(whose):
        mine = [number for number in line.served if whose[number] == namespace]
        assert mine == sorted(mine)
