"""Queue and pace together in virtual time: how long one chain of requests takes beside a flood, a neighbour's or that
of an arm in breach.

The API server answers slowly and has few places, so that one change a second is many times a namespace's share. There
the neighbour was behind for as long as the flood lasted: it asked for more requests than anybody else was given.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable

import pytest

from learnloop_operator.adapters.kube.concurrency_limit import FEWEST, ConcurrencyLimit, on_behalf_of
from learnloop_operator.controllers.passes.runtime import QUIET_WORKERS
from learnloop_operator.controllers.queue.dirty_queue import DirtyQueue
from learnloop_operator.controllers.queue.object_key import ObjectKey

NEIGHBOUR, BREACHED = ObjectKey("RewardPolicy", "quiet", "reward"), ObjectKey("ModelDeployment", "team-0", "canary")
WORKERS, CHAIN = 16, 3
QUICK_SECONDS, SERVICE_SECONDS, EDIT_SECONDS = 0.01, 0.2, 1.0
AT_MOST = 1.5
"""Times CHAIN * SERVICE_SECONDS, which is what the requests take themselves: its place is free, or the next one is."""
AT_MOST_FIRST = 2.5
"""The same of what goes first, where every worker is in the middle of a quiet pass: one of them has to end."""


class Travelling(selectors.DefaultSelector):
    """Where an event loop would sleep, time goes on at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for everybody"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the selector's."""

    def __init__(self) -> None:
        self._clock = Travelling()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class Operator:
    """Workers, each pass a chain of requests to an API server that answers each after SERVICE_SECONDS; one object is
    watched."""

    def __init__(self, watched: ObjectKey, *, first: bool) -> None:
        clock = asyncio.get_running_loop().time
        self.queue, self.pace = DirtyQueue(clock), ConcurrencyLimit(clock)
        self.watched, self.mark = watched, self.queue.mark_first if first else self.queue.mark
        self.left = self.begin = 0
        """Objects of the flood without a pass, and with how many of them the watching begins."""
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    async def busy(self) -> None:
        """The API server was quick until now; a refusal or two leave the fewest places."""
        async with self.pace.turn():
            await asyncio.sleep(QUICK_SECONDS)
        for _ in range(5):
            self.pace.refused()

    async def work(self, take: Callable[[], Awaitable[ObjectKey]]) -> None:
        """One worker."""
        while True:
            key = await take()
            standing = self.queue.standing(key)
            with on_behalf_of(key.namespace, quiet=standing.quiet, first=standing.first):
                for _ in range(CHAIN):
                    async with self.pace.turn():
                        await asyncio.sleep(SERVICE_SECONDS)
            self.queue.done(key)
            if key == self.watched:
                self.over.set()
                continue
            self.left -= 1
            if self.left <= self.begin:
                self.begun.set()

    async def waits(self, teams: int, each: int, begin: int) -> list[float]:
        """Seconds from each mark of the watched object to the end of the pass that follows, while the flood lasts, and
        from when `begin` objects of it are left."""
        await self.busy()
        self.left, self.begin = teams * each, begin
        for number in range(teams * each):
            self.queue.mark(ObjectKey("TrainingJob", f"team-{number % teams}", f"job-{number}"))
        clock, waits = asyncio.get_running_loop().time, list[float]()
        async with asyncio.TaskGroup() as group:
            takes = [self.queue.take] * WORKERS + [self.queue.take_quiet] * QUIET_WORKERS
            workers = [group.create_task(self.work(take)) for take in takes]
            await self.begun.wait()
            while self.left > WORKERS:
                began = clock()
                self.mark(self.watched)
                self.over.clear()
                await self.over.wait()
                waits.append(clock() - began)
                assert self.pace.allowed == FEWEST, "the API server stays slow"
                await asyncio.sleep(max(0.0, began + EDIT_SECONDS - clock()))
            for worker in workers:
                worker.cancel()
        return waits


async def waits(watched: ObjectKey, teams: int, each: int, begin: int, *, first: bool = False) -> list[float]:
    """As the operator's; it needs the running loop."""
    return await Operator(watched, first=first).waits(teams, each, begin)


@pytest.mark.parametrize(("teams", "each"), [(1, 60), (1, 600), (50, 3), (50, 12)])
def test_a_neighbours_chain_of_requests_takes_as_long_as_its_requests_however_large_the_flood(
    teams: int, each: int
) -> None:
    begin = teams * (each - 1)  # the first of each team are as quiet as the neighbour
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        waited = runner.run(waits(NEIGHBOUR, teams, each, begin))
    assert len(waited) >= begin * CHAIN * SERVICE_SECONDS / FEWEST / (2 * EDIT_SECONDS)
    assert max(waited) <= AT_MOST * CHAIN * SERVICE_SECONDS


@pytest.mark.parametrize(
    ("teams", "each", "at_most"),
    [(1, 600, AT_MOST), (2, 300, AT_MOST), (50, 12, AT_MOST), (600, 1, AT_MOST_FIRST)],
)
def test_the_chain_of_a_breach_ends_as_soon_in_the_middle_of_its_own_namespaces_flood(
    teams: int, each: int, at_most: float
) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        waited = runner.run(waits(BREACHED, teams, each, teams * each, first=True))
    assert max(waited) <= at_most * CHAIN * SERVICE_SECONDS
