"""A few places for all namespaces: a flood waits for itself, and a neighbour's first question does not wait."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings, strategies as st

from learnloop_dataplane.concurrency.limits import FairPlaces
from learnloop_dataplane.errors import ApiError


async def work(places: FairPlaces, whose: str, order: list[str], gate: asyncio.Event) -> None:
    async with places.of(whose):
        order.append(whose)
        await gate.wait()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 3)), max_size=40), st.integers(1, 4))
def test_places_are_never_lost_whoever_gives_up(requests: list[tuple[str, bool, int]], at_once: int) -> None:
    async def run() -> None:
        places, inside, most = FairPlaces(at_once), Counter[str](), [0]

        async def one(whose: str, steps: int) -> None:
            async with places.of(whose):
                inside[whose] += 1
                most[0] = max(most[0], inside.total())
                try:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                finally:
                    inside[whose] -= 1

        tasks = []
        for whose, leaves, steps in requests:
            tasks.append(asyncio.create_task(one(whose, steps)))
            await asyncio.sleep(0)
            if leaves:
                tasks[-1 - len(tasks) // 2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert most[0] <= at_once
        async with asyncio.timeout(1), AsyncExitStack() as stack:
            for whose in range(at_once):
                await stack.enter_async_context(places.of(str(whose)))

    asyncio.run(run())


async def test_of_a_flood_only_so_many_wait_and_a_neighbour_is_not_refused() -> None:
    places, order, gate = FairPlaces(2, most_waiting=3), list[str](), asyncio.Event()
    flood = [asyncio.create_task(work(places, "loud", order, gate)) for _ in range(4)]
    await settled()
    with pytest.raises(ApiError, match="3 requests of loud wait") as refused:
        await work(places, "loud", order, gate)
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    quiet = asyncio.create_task(work(places, "quiet", order, gate))
    await settled()
    assert order == ["loud", "quiet"]
    gate.set()
    await asyncio.gather(quiet, *flood)
