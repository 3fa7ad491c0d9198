"""Memories of a namespace in a flood are indexed in turns, and its neighbours have theirs in between."""

import asyncio

import pytest

from learnloop_dataplane.concurrency.namespace_rounds import TURN
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
