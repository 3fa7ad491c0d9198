"""What is asked for at the same time is done in one go."""

import asyncio
from typing import Any

import pytest

from learnloop_dataplane.concurrency.offload import Together


async def test_what_comes_together_is_done_together_and_fails_alone() -> None:
    batches: list[list[int]] = []

    async def run(_: str, items: Any) -> list[int | Exception]:
        batches.append(list(items))
        await asyncio.sleep(0.01)
        return [ValueError("odd") if item % 2 else item for item in items]

    together: Together[int, int] = Together(run, most=8, at_once=1)
    results = await asyncio.gather(*(together.do("n", item) for item in range(12)), return_exceptions=True)
    assert [len(batch) for batch in batches] == [1, 8, 3]
    assert [isinstance(result, ValueError) for result in results] == [bool(item % 2) for item in range(12)]


async def test_a_single_item_has_no_task_and_whoever_came_meanwhile_is_next() -> None:
    batches: list[list[int]] = []
    go_on = asyncio.Event()

    async def run(_: str, items: Any) -> list[int | Exception]:
        batches.append(list(items))
        await go_on.wait()
        return [10 * item for item in items]

    together: Together[int, int] = Together(run, most=8, at_once=1)
    before = len(asyncio.all_tasks())
    first = asyncio.create_task(together.do("n", 1))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before + 1  # the one that asks
    others = [asyncio.create_task(together.do("n", item)) for item in (2, 3)]
    await asyncio.sleep(0)
    assert batches == [[1]]
    go_on.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    assert batches == [[1], [2, 3]]
    assert await together.do("n", 4) == 40
    assert batches[-1] == [4]


async def test_who_asks_alone_and_gives_up_holds_nobody_back() -> None:
    never = asyncio.Event()

    async def run(_: str, items: Any) -> list[int | Exception]:
        if 1 in items:
            await never.wait()
        return list(items)

    together: Together[int, int] = Together(run, most=8, at_once=1)
    first = asyncio.create_task(together.do("n", 1))
    await asyncio.sleep(0)
    second = asyncio.create_task(together.do("n", 2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.wait_for(second, 5) == 2
    assert await together.do("n", 3) == 3
