"""Who waits for a turn, and who is told at once that none will come in time."""

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest

from learnloop_dataplane.concurrency.limits import Turns
from learnloop_dataplane.errors import ApiError


async def test_a_turn_that_comes_too_late_is_a_refusal_and_a_turn_given_up_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, order, over = [0.0], list[str](), {"first": asyncio.Event(), "second": asyncio.Event()}
    monkeypatch.setattr("learnloop_dataplane.concurrency.limits.time", SimpleNamespace(monotonic=lambda: now[0]))
    turns = Turns(at_once=1, patience=5.0, most_waiting=2)

    async def work(name: str, seconds: float = 0.0) -> None:
        async with turns:
            if name in over:
                await over[name].wait()
            now[0] += seconds
            order.append(name)

    first = asyncio.create_task(work("first", 2.0))
    await asyncio.sleep(0)
    gone, second = asyncio.create_task(work("gone")), asyncio.create_task(work("second", 10.0))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="more recalls") as refused:
        await work("on arrival")
    assert refused.value.status == 429
    assert refused.value.retry_after in (1, 2)
    gone.cancel()
    over["first"].set()
    await first
    late = asyncio.create_task(work("late"))
    await asyncio.sleep(0)
    over["second"].set()
    await second
    with pytest.raises(ApiError):
        await late
    await work("last")
    assert order == ["first", "second", "last"]


async def test_of_a_crowd_most_who_are_refused_are_so_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pace = [0.0], 0.001
    monkeypatch.setattr("learnloop_dataplane.concurrency.limits.time", SimpleNamespace(monotonic=lambda: now[0]))
    turns = Turns(at_once=4, patience=0.005)
    refused_after: list[float] = []
    served_after: list[float] = []
    inside: deque[asyncio.Event] = deque()

    async def one() -> None:
        came = now[0]
        try:
            async with turns:
                served_after.append(now[0] - came)
                inside.append(over := asyncio.Event())
                await over.wait()
        except ApiError:
            refused_after.append(now[0] - came)

    async with asyncio.TaskGroup() as crowd:
        for _ in range(500):  # two come for each that can be served
            crowd.create_task(one())
            crowd.create_task(one())
            await asyncio.sleep(0)
            now[0] += pace
            inside.popleft().set()
            for _ in range(3):
                await asyncio.sleep(0)
        while inside:
            inside.popleft().set()
            for _ in range(3):
                await asyncio.sleep(0)
    assert len(served_after) >= 500
    assert max(served_after) <= 0.005 + pace
    assert refused_after.count(0.0) > 0.8 * len(refused_after)


async def test_one_may_wait_however_slow_it_was_and_so_a_better_pace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("learnloop_dataplane.concurrency.limits.time", SimpleNamespace(monotonic=lambda: now[0]))
    turns = Turns(at_once=1, patience=0.005)

    async def served_after(seconds: float) -> bool:
        """Does somebody who comes while another is in get a turn, when that one takes so long?"""
        over = asyncio.Event()

        async def first() -> None:
            async with turns:
                await over.wait()

        async def second() -> bool:
            try:
                async with turns:
                    return True
            except ApiError:
                return False

        tasks = asyncio.create_task(first()), asyncio.create_task(second())
        await asyncio.sleep(0)
        now[0] += seconds
        over.set()
        return (await asyncio.gather(*tasks))[1]

    assert [await served_after(10.0) for _ in range(5)] == [False] * 5
    assert [await served_after(0.001) for _ in range(5)] == [True] * 5
