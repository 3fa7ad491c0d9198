"""Memories of a namespace in a flood are indexed in turns, and its neighbours have theirs in between."""

import asyncio

import pytest

from learnloop_dataplane.concurrency.loop import TURN
from learnloop_dataplane.memories import indexing_schedule
from learnloop_dataplane.memories.indexing_schedule import IndexPace


async def test_who_has_more_than_a_turn_comes_again_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing_schedule, "BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(indexing_schedule, "BULK_PAUSE_SECONDS", 0.0)
    left, order = {"flood": 2 * TURN + 5, "quiet": 1}, []
    ended = asyncio.Event()

    async def index(namespace: str) -> int:
        done = min(left[namespace], TURN)
        left[namespace] -= done
        order.append(namespace)
        if not any(left.values()):
            ended.set()
        return done

    pace = IndexPace(index)
    pace.stored("flood")
    pace.stored("quiet")
    task = asyncio.create_task(pace.run())
    await asyncio.wait_for(ended.wait(), 10)
    task.cancel()
    assert order == ["flood", "quiet", "flood", "flood"]


async def test_a_namespace_that_an_embedder_is_slow_with_delays_no_other() -> None:
    stuck, indexed = asyncio.Event(), asyncio.Event()

    async def index(namespace: str) -> int:
        await stuck.wait() if namespace == "a-slow" else indexed.set()
        return 1

    pace = IndexPace(index)
    task = asyncio.create_task(pace.run())
    pace.stored("a-slow")
    await asyncio.sleep(0.1)
    pace.stored("quick")
    await asyncio.wait_for(indexed.wait(), 10)
    task.cancel()
