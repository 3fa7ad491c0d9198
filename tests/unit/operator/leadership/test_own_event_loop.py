"""Work on a loop of its own goes on while the loop that asked for it is busy."""

import asyncio
import threading

import pytest

from learnloop_operator.adapters.leadership.own_event_loop import OwnEventLoop


async def test_it_works_while_the_loop_that_waits_for_it_is_busy_and_ends_when_told() -> None:
    ready, done = threading.Event(), threading.Event()

    async def work() -> str:
        await asyncio.sleep(0)
        done.set()
        return threading.current_thread().name

    own = OwnEventLoop("lease", ready.set)
    asked = asyncio.create_task(own.run(work()))
    await asyncio.sleep(0)
    assert done.wait(60), "our own loop does not turn here"
    assert await asked == "lease"
    assert ready.is_set()
    await own.stop()


async def test_errors_come_back_and_a_wait_that_is_cancelled_cancels_the_work() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def fails() -> None:
        raise ValueError("this one")

    async def lasts() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    own = OwnEventLoop("lease", lambda: None)
    with pytest.raises(ValueError, match="this one"):
        await own.run(fails())
    waiting = asyncio.create_task(own.run(lasts()))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    assert await asyncio.to_thread(cancelled.wait, 60)
    await own.stop()
